"""How the page looks."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: #1d2733; background: #f4f6f8; }
header { position: sticky; top: 0; z-index: 9; display: flex; flex-wrap: wrap; gap: 4px 24px;
  align-items: baseline; padding: 10px 28px; background: #fffffff0;
  border-bottom: 1px solid #dde3e9; }
header h1 { font-size: 19px; margin: 0; }
header p { margin: 0; color: #5b6875; }
nav { margin-left: auto; }
nav a { margin-left: 16px; color: #0072b2; text-decoration: none; }
main { max-width: 1280px; margin: 0 auto; padding: 20px 28px 60px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(140px, 1fr)); gap: 12px; }
.tile { padding: 12px 16px; background: #fff; border-radius: 8px; border-top: 4px solid #c8d1da; }
.tile b { display: block; font-size: 24px; font-variant-numeric: tabular-nums; }
.tile span { color: #5b6875; }
.tile.good { border-color: #009e73; }
.tile.doubt { border-color: #e69f00; }
.tile.bad { border-color: #d55e00; }
section { margin-top: 24px; padding: 8px 20px 16px; background: #fff; border-radius: 8px;
  scroll-margin-top: 60px; }
section h2 { font-size: 18px; margin: 10px 0 0; }
section p { margin: 2px 0 8px; color: #5b6875; max-width: 90ch; }
.nothing { font-style: italic; }
.wide { overflow: auto; max-height: 420px; margin-top: 12px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { position: sticky; top: 0; text-align: left; background: #fff; }
th, td { padding: 4px 12px 4px 0; border-bottom: 1px solid #e8ecf0; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
"""
