// The bar at the bottom shows what decides the cell under the pointer, the focus or the finger: inside the window always.
const bar = document.getElementById('detail'), first = bar.textContent;
const show = cell => {
  document.querySelectorAll('li.lit').forEach(item => item.classList.remove('lit'));
  bar.textContent = cell ? cell.getAttribute('aria-label') : first;
  const reason = cell && document.getElementById('reason-' + cell.textContent.trim());
  if (reason) reason.classList.add('lit');
};
const of = event => event.target.closest && event.target.closest('td');
document.addEventListener('mouseover', event => show(of(event)));
document.addEventListener('focusin', event => show(of(event)));
document.addEventListener('click', event => of(event) && show(of(event)));
