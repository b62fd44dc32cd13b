"""How the page looks, by day and by night."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2733; --faint: #5b6875; --page: #f4f6f8;
  --card: #fff; --rule: #dde3e9; --link: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e8ee; --faint: #9aa7b4; --page: #11161c; --card: #1a2129; --rule: #303a45;
    --link: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--page); }
header { position: sticky; top: 0; z-index: 9; display: flex; flex-wrap: wrap; gap: 2px 24px;
  align-items: baseline; padding: 10px 28px; background: var(--card);
  border-bottom: 1px solid var(--rule); }
header h1 { font-size: 19px; margin: 0; }
header p { margin: 0; color: var(--faint); }
nav { margin-left: auto; display: flex; flex-wrap: wrap; gap: 0 16px; }
a { color: var(--link); text-decoration: none; }
main { max-width: 1280px; margin: 0 auto; padding: 20px 28px 60px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(215px, 1fr)); gap: 12px; }
.tile { padding: 10px 16px; background: var(--card); border-radius: 8px;
  border-top: 4px solid var(--rule); }
.tile b { display: block; font-size: 24px; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.tile span { color: var(--faint); }
.tile.good { border-color: #009e73; }
.tile.doubt { border-color: #e69f00; }
.tile.bad { border-color: #d55e00; }
section { margin-top: 24px; padding: 8px 20px 16px; background: var(--card); border-radius: 8px;
  scroll-margin-top: 60px; }
h2 { font-size: 18px; margin: 10px 0 0; }
h3 { font-size: 14px; font-weight: 600; margin: 16px 0 4px; }
section p { margin: 2px 0 8px; color: var(--faint); max-width: 90ch; }
section p.nothing { font-style: italic; }
.plots { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 28px; }
.plots > .wide { grid-column: 1 / -1; }
.scroll { overflow: auto; max-height: 420px; margin-top: 12px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { position: sticky; top: 0; text-align: left; background: var(--card); }
th, td { padding: 4px 16px 4px 0; border-bottom: 1px solid var(--rule); white-space: nowrap;
  font-variant-numeric: tabular-nums; }
details { margin-top: 8px; }
summary { cursor: pointer; }
pre { overflow-x: auto; margin: 6px 0; padding: 10px 14px; background: var(--page);
  border-radius: 6px; font: 13px/1.45 ui-monospace, monospace; }
footer { color: var(--faint); text-align: center; padding-bottom: 24px; font-size: 13px; }
@media (max-width: 800px) {
  header { position: static; padding: 10px 16px; }
  nav { margin-left: 0; }
  main { padding: 12px 12px 40px; }
  section { padding: 4px 12px 12px; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .tile b { font-size: 20px; }
  .plots { grid-template-columns: minmax(0, 1fr); } }
"""

# Draws what stands beside each place, in the colours that the reader's machine asks for.
SCRIPT: Final = """
const night = matchMedia("(prefers-color-scheme: dark)");
const config = {displaylogo: false, responsive: true, displayModeBar: false};
function themed(layout) {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const made = {...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: {...layout.font, color: of("--ink")},
    hoverlabel: {bgcolor: of("--card"), font: {color: of("--ink")}}};
  for (const axis of ["xaxis", "yaxis"])
    made[axis] = {gridcolor: of("--rule"), linecolor: of("--rule"), ...layout[axis]};
  return made;
}
function draw() {
  for (const place of document.querySelectorAll(".plot")) {
    const {data, layout} = JSON.parse(place.nextElementSibling.textContent);
    Plotly.react(place, data, themed(layout), config);
  }
}
night.addEventListener("change", draw);
draw();
"""
