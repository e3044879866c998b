"""How the page looks: one column, system fonts, light and dark, screen, phone and paper."""

from __future__ import annotations

CSS = """
:root{--ink:#1b2733;--soft:#566370;--line:#d5dbe1;--card:#ffffff;--page:#f5f6f4;--code:#eef1f3;
--yes:#00704f;--mostly:#0b6699;--unsure:#6a5b00;--no:#a93c00;--best:#e8f3ee;
--forget:#c65300;--known:#0072b2;--on-bar:#fff}
@media (prefers-color-scheme:dark){:root{--ink:#e8ecef;--soft:#a9b4be;--line:#3a4651;--card:#1a222a;
--page:#11171d;--code:#26313b;--yes:#4fcfa0;--mostly:#6fbdf0;--unsure:#e3cf63;--no:#ff9a5c;
--best:#1d3530;--forget:#ee7d2e;--known:#4aa3dc;--on-bar:#101418}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);line-height:1.55;
font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem}
header p.what{color:var(--soft);margin:0 0 1rem;overflow-wrap:anywhere}
h1{font-size:1rem;font-weight:600;letter-spacing:.01em;margin:0;overflow-wrap:anywhere}
h2{font-size:1.3rem;line-height:1.25;margin:3rem 0 .4rem;letter-spacing:-.01em}
h3{font-size:1rem;margin:1.6rem 0 .3rem}
p{margin:.4rem 0 .8rem;max-width:44rem}
.verdict{background:var(--card);border:1px solid var(--line);border-left:.5rem solid var(--tone);
border-radius:.75rem;padding:1.1rem 1.25rem;margin:0 0 1rem}
.verdict .question{color:var(--soft);margin:0}
.verdict .answer{font-size:clamp(1.35rem,4.6vw,2rem);line-height:1.2;font-weight:700;
letter-spacing:-.015em;margin:.2rem 0 .8rem;max-width:none;text-wrap:balance}
.verdict .answer b{color:var(--tone)}
ul.note{margin:.2rem 0;padding-left:1.1rem;max-width:44rem}
.verdict ul{margin:0;padding-left:1.1rem;max-width:44rem}
.verdict li{margin:.25rem 0}
.yes{--tone:var(--yes)}.mostly{--tone:var(--mostly)}.unsure{--tone:var(--unsure)}
.no,.too-much,.damaged{--tone:var(--no)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(12.5rem,1fr));gap:.75rem;
margin:1rem 0 .5rem}
.tiles:has(>:nth-child(5)){grid-template-columns:repeat(auto-fit,minmax(min(100%,17rem),1fr))}
.tile{background:var(--card);border:1px solid var(--line);border-radius:.75rem;
padding:.85rem 1rem;display:flex;flex-direction:column}
.tile h3{font-size:.9rem;font-weight:600;line-height:1.3;margin:0 0 .3rem}
.tile .big{font-size:2.1rem;line-height:1.1;font-weight:700;letter-spacing:-.02em;
margin:auto 0 .35rem;
font-variant-numeric:tabular-nums}
.tile .big small{font-size:1rem;font-weight:500;color:var(--soft);letter-spacing:0}
.tile dl{display:grid;grid-template-columns:1fr auto;gap:0 .5rem;margin:0;font-size:.9rem}
.tile dt{color:var(--soft)}.tile dd{margin:0;font-variant-numeric:tabular-nums;text-align:right}
.each{list-style:none;padding:0;margin:.5rem 0;display:flex;flex-wrap:wrap;gap:.5rem}
.each li{background:var(--card);border:1px solid var(--line);border-left:.3rem solid var(--tone);
border-radius:.4rem;padding:.2rem .6rem;font-size:.92rem;overflow-wrap:anywhere}
.each b{color:var(--tone)}
.note{color:var(--soft);font-size:.92rem}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:.75rem;
margin:.6rem 0}
.scroll:focus-visible{outline:3px solid var(--mostly);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.5rem .6rem;text-align:right;white-space:nowrap;border-top:1px solid var(--line);
vertical-align:top}
thead th{border-top:0;color:var(--soft);font-weight:600;vertical-align:bottom}
th:first-child{text-align:left;position:sticky;left:0;background:var(--card);white-space:normal;
min-width:6.5rem}
tbody th{font-weight:600}
td small,th small{display:block;color:var(--soft);font-weight:400}
tr.best th,tr.best td{background:var(--best)}
tr.aside th,tr.aside td{color:var(--soft);font-weight:400}
.settings td{text-align:left;white-space:normal;min-width:14rem}
.settings th{text-align:left}
figure{margin:.6rem 0;background:var(--card);border:1px solid var(--line);border-radius:.75rem;
padding:.75rem;break-inside:avoid}
figure svg{display:block;width:100%;height:auto;max-width:34rem;margin:0 auto}
figure svg *{stroke-linejoin:round;stroke-linecap:butt}
figcaption{font-weight:600;font-size:.95rem;padding:0 .25rem .3rem;overflow-wrap:anywhere}
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,19rem),1fr));gap:.75rem;
margin:.6rem 0}
.panels figure{margin:0}
pre,code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.88em}
pre{background:var(--code);border-radius:.5rem;padding:.75rem 1rem;white-space:pre-wrap;
overflow-wrap:anywhere;margin:.5rem 0 1rem}
@media (max-width:30rem){main{padding:1rem .75rem 3rem}
.tiles,.tiles:has(>:nth-child(5)){grid-template-columns:1fr 1fr;gap:.5rem}
.tile{padding:.7rem .75rem}.tile .big{font-size:1.7rem}figure{padding:.5rem}
th,td{padding:.45rem .55rem}}
@media print{:root{--ink:#000;--soft:#444;--line:#bbb;--card:#fff;--page:#fff;--code:#f3f3f3;
--yes:#00704f;--mostly:#0b6699;--unsure:#6a5b00;--no:#a93c00;--best:#eef5f1;
--forget:#c65300;--known:#0072b2;--on-bar:#fff}
body{font-size:10.5pt}main{max-width:none;padding:0}.scroll{overflow:visible}
table{font-size:7.5pt}th,td{padding:.25rem .35rem}
h2{break-after:avoid;margin-top:1.6rem}h3,h2+p{break-after:avoid}.verdict,.tile,tr{break-inside:avoid}
.panels{grid-template-columns:1fr 1fr}}
"""
