// Moving a picture by dragging it. The picture is a layer of its own at all times, and moving it only says where that layer
// is: hundreds of boxes and lines are neither drawn nor asked where the pointer is. It refuses to zoom, which draws anew.

import type { RefObject } from "preact";
import { useRef, useState } from "preact/hooks";

/** How far a pointer may move, in pixels, and still have been a click. */
const CLICK = 3;

interface Point {
  x: number;
  y: number;
}

const shift = ({ x, y }: Point): string => `translate(${x}px, ${y}px)`;

export interface Move {
  /** Whether the picture is being moved: whoever draws it waits for that. */
  moving: boolean;
  /** For the element that hears pointers. */
  stage: {
    onPointerDown: (event: PointerEvent) => void;
    onPointerMove: (event: PointerEvent) => void;
    onPointerUp: () => void;
    onPointerLeave: () => void;
  };
  /** For the element inside it that is moved. */
  layer: { ref: RefObject<HTMLDivElement | null>; style: { transform: string } };
  /** Back to where it was at first. */
  reset: () => void;
}

export function useMove(): Move {
  const [moving, setMoving] = useState(false);
  const [, redraw] = useState(0);
  const layer = useRef<HTMLDivElement>(null);
  const place = useRef<Point>({ x: 0, y: 0 });
  /** Where the pointer was pressed, and where the picture was then. */
  const drag = useRef<{ pointer: Point; place: Point } | null>(null);
  const release = () => {
    drag.current = null;
    setMoving(false);
  };
  return {
    moving,
    stage: {
      onPointerDown: (event) => {
        drag.current = { pointer: { x: event.clientX, y: event.clientY }, place: place.current };
      },
      onPointerMove: (event) => {
        if (!drag.current) return;
        const { pointer, place: before } = drag.current;
        const [x, y] = [event.clientX - pointer.x, event.clientY - pointer.y];
        if (!moving && Math.abs(x) + Math.abs(y) <= CLICK) return;
        setMoving(true);
        place.current = { x: before.x + x, y: before.y + y };
        // Past the components: nothing else depends on it.
        if (layer.current) layer.current.style.transform = shift(place.current);
      },
      onPointerUp: release,
      onPointerLeave: release,
    },
    layer: { ref: layer, style: { transform: shift(place.current) } },
    reset: () => {
      place.current = { x: 0, y: 0 };
      redraw((count) => count + 1);
    },
  };
}
