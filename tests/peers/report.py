#!/usr/bin/env python3
"""Markdown tables from bench.py results: best peer per shape, and Tesserine where present."""
import json
import sys
from collections import OrderedDict


def load(paths):
    env, rows, lat = [], OrderedDict(), []
    for p in paths:
        for line in open(p):
            try:
                r = json.loads(line)
            except json.JSONDecodeError:
                continue
            if "env" in r:
                env.append(r)
            elif "latency" in r:
                lat.append(r)
            elif "peer" in r:
                k = (r["suite"], r["op"], json.dumps(r["p"]), r["peer"])
                old = rows.get(k)       # several runs: the fastest correct one
                rank = lambda x: (0, x["ms"]) if "ms" in x and x.get("ok") else (1, 0) if "ms" in x else (2, 0)
                if old is None or rank(r) <= rank(old):
                    rows[k] = r
    return env, list(rows.values()), lat


def fmt(ms):
    return f"{ms * 1e3:.1f} us" if ms < 1 else f"{ms:.3f} ms"


def main():
    env, rows, lat = load(sys.argv[1:])
    for e in env[:1]:
        print("environment:", json.dumps(e["env"]))
    for e in env:
        print("ceilings:", json.dumps({k: round(v, 1) if isinstance(v, float) else v for k, v in e["ceilings"].items()}))
    by = OrderedDict()
    for r in rows:
        by.setdefault((r["suite"], r["op"]), OrderedDict()).setdefault(json.dumps(r["p"]), []).append(r)
    for (s, o), shapes in by.items():
        names = list(OrderedDict.fromkeys(r["peer"] for rs in shapes.values() for r in rs if "ms" in r))
        print(f"\n### {s}: {o}\n\n| shape | best peer | time | TFLOP/s | GB/s | % of roof | " + " | ".join(names) + " |")
        print("|" + "---|" * (6 + len(names)))
        for p, rs in shapes.items():
            g = {r["peer"]: r for r in rs if "ms" in r}
            ok = {k: r for k, r in g.items() if r.get("ok") and k.partition(":")[0] != "tesserine"}
            sh = " ".join(f"{k}={v}" for k, v in json.loads(p).items())
            cells = [f"{fmt(g[n]['ms'])}{'' if g[n].get('ok') else ' (wrong)'}" if n in g else "-" for n in names]
            if ok:
                b = min(ok, key=lambda k: ok[k]["ms"])
                r = ok[b]
                print(f"| {sh} | {b} | {fmt(r['ms'])} | {r['tflops']:.0f} | {r['gbs']:.0f} | {100 * r['roof']:.0f} ({r['bound']}) | " + " | ".join(cells) + " |")
            else:
                print(f"| {sh} | none | | | | | " + " | ".join(cells) + " |")
    bad = OrderedDict()
    for r in rows:
        m = r.get("error") or r.get("unavailable") or (None if r.get("ok", True) else f"wrong result: rel_err {r.get('rel_err'):.3g}, unwritten {r.get('unwritten_or_nan')}")
        if m:
            bad.setdefault((r["op"], r["peer"], m[:160]), []).append(r)
    if bad:
        print("\n### peers that did not run\n\n| op | peer | shapes | why |\n|---|---|---|---|")
        for (o, k, m), rs in bad.items():
            print(f"| {o} | {k} | {len(rs)} | {m.replace('|', '/')} |".replace("\n", " "))
    if lat:
        print("\n### compile and import latency\n\n| what | measured |\n|---|---|")
        for r in lat:
            print(f"| {r.pop('latency')} | {', '.join(f'{k} {v}' for k, v in r.items())} |")


if __name__ == "__main__":
    main()
