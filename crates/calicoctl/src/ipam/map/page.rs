//! The map as a self-contained page: one file, no scripts, light and dark, readable on a phone. A table below the map
//! lists the number behind every shade.

use super::{Cell, cells, owners, tenths};
use crate::ipam::usage::{PoolUse, percent};
use ::explain::counted;
use ::explain::escaped;
use std::fmt::Write as _;

const STYLE: &str = "\
:root{color-scheme:light dark;--ground:#fff;--text:#1b1f24;--soft:#57606a;--line:#d0d7de;--vacant:#eef1f4}\
@media (prefers-color-scheme:dark){:root{--ground:#0d1117;--text:#e6edf3;--soft:#9198a1;--line:#30363d;--vacant:#1c2128}}\
*{box-sizing:border-box}\
body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--ground);color:var(--text);\
font:16px/1.5 system-ui,sans-serif}\
h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:2rem 0 .2rem;overflow-wrap:anywhere}\
p{margin:.2rem 0;color:var(--soft)}\
.map{display:grid;grid-template-columns:repeat(auto-fill,minmax(1.1rem,1fr));gap:2px;margin:.6rem 0;padding:0;list-style:none}\
.map li{aspect-ratio:1;border-radius:2px;background:var(--vacant);color:#fff;font-size:.6rem;display:grid;place-items:center}\
.s0{background:#2c6e49!important}.s1{background:#3a7d44!important}.s2{background:#4f8a3d!important}\
.s3{background:#6b8f33!important}.s4{background:#8a8a28!important}.s5{background:#9c7f22!important}\
.s6{background:#a9701f!important}.s7{background:#b2601f!important}.s8{background:#b94f22!important}\
.s9{background:#bd3c28!important}.s10{background:#a61b1b!important}\
.key{display:flex;flex-wrap:wrap;gap:.4rem 1rem;font-size:.85rem;color:var(--soft)}\
.key i{display:inline-block;width:.9rem;height:.9rem;border-radius:2px;vertical-align:-.1rem;background:var(--vacant)}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;width:100%}\
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line);white-space:nowrap}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
summary{cursor:pointer;color:var(--soft)}";

/// The page. `facts` follow the title: when it was generated, and from what.
#[must_use]
pub(in crate::ipam) fn html(pools: &[PoolUse], facts: &str) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Addresses in use</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>Addresses in use</h1>\n<p>{}</p>\n",
        escaped(facts)
    );
    out.push_str("<div class=\"key\" aria-hidden=\"true\"><span><i></i> no block yet</span>");
    for (shade, meaning) in [(0, "empty"), (3, "30%"), (6, "60%"), (9, "90%"), (10, "full")] {
        // Writing to a string cannot fail.
        let _ = write!(out, "<span><i class=\"s{shade}\"></i> {meaning}</span>");
    }
    out.push_str("</div>\n");
    if pools.is_empty() {
        out.push_str("<p>There are no IP pools.</p>\n");
    }
    for pool in pools {
        section(&mut out, pool);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn section(out: &mut String, pool: &PoolUse) {
    let disabled = if pool.disabled { " (disabled)" } else { "" };
    let _ = write!(
        out,
        "<section>\n<h2>{}{disabled}</h2>\n<p>{} of {} addresses in use ({}%), {} reserved, {} free; {} on {}</p>\n",
        escaped(&pool.title()),
        pool.in_use,
        pool.capacity,
        percent(pool.in_use, pool.capacity),
        pool.reserved,
        pool.available,
        counted(pool.blocks.len(), "block"),
        counted(owners(pool), "node")
    );
    let (cells, is_whole) = cells(pool);
    // The table below contains the same as text.
    out.push_str("<ul class=\"map\" aria-hidden=\"true\">\n");
    for cell in cells {
        match cell {
            Cell::Vacant => out.push_str("<li></li>"),
            Cell::Block(block) => {
                let _ = write!(
                    out,
                    "<li class=\"s{}\" title=\"{} {}: {} of {}\">{}</li>",
                    tenths(block),
                    block.cidr,
                    escaped(&block.owner),
                    block.in_use,
                    block.capacity,
                    block.in_use
                );
            }
        }
    }
    out.push_str("\n</ul>\n");
    if !is_whole && !pool.blocks.is_empty() {
        out.push_str("<p>Only blocks that exist are shown.</p>\n");
    }
    if pool.blocks.is_empty() {
        out.push_str("</section>\n");
        return;
    }
    let open = if pool.blocks.len() <= 64 { " open" } else { "" };
    let _ = write!(
        out,
        "<details{open}>\n<summary>{}</summary>\n<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">Block</th>\
         <th scope=\"col\">Node</th><th scope=\"col\" class=\"n\">In use</th><th scope=\"col\" class=\"n\">Of</th>\
         <th scope=\"col\" class=\"n\">Reserved</th><th scope=\"col\" class=\"n\">Share</th></tr></thead>\n<tbody>\n",
        counted(pool.blocks.len(), "block")
    );
    for block in &pool.blocks {
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}%</td></tr>",
            block.cidr,
            escaped(if block.owner.is_empty() { "none" } else { &block.owner }),
            block.in_use,
            block.capacity,
            block.reserved,
            percent(block.in_use, block.capacity)
        );
    }
    out.push_str("</tbody>\n</table></div>\n</details>\n</section>\n");
}

#[cfg(test)]
mod tests {
    use super::super::tests::{block, pool};
    use super::*;

    #[test]
    fn every_shade_is_also_a_number() {
        let pools = [pool("10.0.0.0/24", 26, vec![block("10.0.0.64/26", "node<1>", 64)])];
        let page = html(&pools, "made today & now");
        for expected in [
            "<li></li><li class=\"s10\" title=\"10.0.0.64/26 node&lt;1&gt;: 64 of 64\">64</li><li></li><li></li>",
            "<th scope=\"row\">10.0.0.64/26</th><td>node&lt;1&gt;</td><td class=\"n\">64</td><td class=\"n\">64</td>",
            "64 of 256 addresses in use (25%), 0 reserved, 192 free; 1 block on 1 node",
            "<p>made today &amp; now</p>",
            "prefers-color-scheme:dark",
            "name=\"viewport\"",
        ] {
            assert!(page.contains(expected), "{expected} is not in {page}");
        }
        // The page fetches nothing and runs nothing.
        for forbidden in ["<script", "http:", "https:", "src=", "<link"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn a_cluster_without_pools_says_so() {
        assert!(html(&[], "").contains("There are no IP pools."));
    }
}
