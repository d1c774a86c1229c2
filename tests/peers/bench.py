#!/usr/bin/env python3
"""Side-by-side GPU kernel benchmark: peers against an optional candidate.

See README.md for the operator contract and the measuring method.
"""
import argparse
import gc
import importlib.util
import json
import math
import os
import random
import sys
import time
import traceback

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ops as O  # noqa: E402
import peers as P  # noqa: E402

MIN_FOOTPRINT = 512 << 20    # rotate input sets over at least this much memory
MAX_SETS = 64
OURS = "tesserine"


def nbytes(d):
    return sum(v.numel() * v.element_size() for v in d.values() if isinstance(v, torch.Tensor))


class Case:
    """One operator at one shape: shared arguments plus rotating input sets."""

    def __init__(self, op, p, seed, max_bytes):
        self.op, self.p = op, p
        c = O.Ctx(seed)
        self.meta = op.meta(c, p)
        self.sets = [self._set(c)]
        per = nbytes(self.sets[0])
        shared = nbytes(self.meta)
        n = op.sets or 1 if op.sets or shared > MIN_FOOTPRINT else min(MAX_SETS, max(1, -(-MIN_FOOTPRINT // max(per, 1))))
        n = max(1, min(n, int(max_bytes // max(per, 1))))
        self.sets += [self._set(c) for _ in range(n - 1)]
        self.footprint = per * n + shared
        self.cold = self.footprint >= 3 * torch.cuda.get_device_properties(0).L2_cache_size

    def _set(self, c):
        s = dict(self.op.data(c, self.p))
        for k, (shape, dt) in self.op.outs(self.p).items():
            s[k] = torch.empty(shape, dtype=dt, device=O.DEV)
        return s

    def args(self, i):
        return {**self.meta, **self.sets[i]}


def poison(t):
    t.fill_(float("nan") if t.is_floating_point() else -7777)


def verify(case, fn):
    """One checked run on fresh copies of set 0; outputs poisoned before it."""
    op, p = case.op, case.p
    outs = op.outs(p)
    a = case.args(0)
    ref_in = dict(a)
    for k in op.inplace:
        ref_in[k] = a[k].clone()
        a[k] = a[k].clone()
    for k in outs:
        poison(a[k])
    got = fn(a)
    torch.cuda.synchronize()
    res = {k: a[k] for k in list(outs) + list(op.inplace)}
    if isinstance(got, dict):
        res.update(got)
    elif isinstance(got, torch.Tensor) and len(outs) == 1:
        res[next(iter(outs))] = got
    bad = 0
    for k, (shape, dt) in outs.items():
        if tuple(res[k].shape) != tuple(shape):
            res[k] = res[k].reshape(shape)
        bad += int((~torch.isfinite(res[k])).sum() if res[k].is_floating_point() else (res[k] == -7777).sum())
    r = op.check(ref_in, res, p)
    r["unwritten_or_nan"] = bad
    r["ok"] = bool(r["ok"] and bad == 0)
    return r


class Timer:
    """Runs K calls over the rotating sets per replay, as one CUDA graph if possible."""

    def __init__(self, case, fn, target_ms):
        self.fn, self.case = fn, case
        n = len(case.sets)
        self.argv = [case.args(i) for i in range(n)]
        for i in range(min(2, n)):
            fn(self.argv[i])
        torch.cuda.synchronize()
        e0, e1 = torch.cuda.Event(True), torch.cuda.Event(True)
        m = min(max(n, 3), 8)
        e0.record()
        for i in range(m):
            fn(self.argv[i % n])
        e1.record()
        torch.cuda.synchronize()
        t = max(e0.elapsed_time(e1) / m, 1e-3)
        self.k = int(min(max(n, math.ceil(target_ms / t)), max(1, 60 / t), 256)) or 1
        self.graph, self.method = None, "events"
        if os.environ.get("BENCH_NO_GRAPH") != "1":
            try:
                s = torch.cuda.Stream()
                s.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(s):
                    for i in range(min(2, n)):
                        fn(self.argv[i])
                torch.cuda.current_stream().wait_stream(s)
                torch.cuda.synchronize()
                g = torch.cuda.CUDAGraph()
                with torch.cuda.graph(g):
                    for i in range(self.k):
                        last = fn(self.argv[i % n])
                if not self.replay_writes(g, self.argv[(self.k - 1) % n], last):
                    raise RuntimeError("a replay does not write the outputs: work escaped the capture")
                self.graph, self.method = g, "graph"
            except Exception as e:      # not capturable: plain launches
                self.graph_error = f"{type(e).__name__}: {e}"[:200]
                self.graph = None
        torch.cuda.synchronize()

    def replay_writes(self, g, args, last):
        """Poison the outputs of the last captured call, replay, and see that all of them were written again."""
        outs = [args[k] for k in self.case.op.outs(self.case.p)]
        if isinstance(last, torch.Tensor):
            outs = [last]
        elif isinstance(last, dict):
            outs = list(last.values())
        for t in outs:
            poison(t)
        g.replay()
        torch.cuda.synchronize()
        return all(bool(torch.isfinite(t).all() if t.is_floating_point() else (t != -7777).all()) for t in outs)

    def replay(self):
        if self.graph is not None:
            self.graph.replay()
        else:
            n = len(self.argv)
            for i in range(self.k):
                self.fn(self.argv[i % n])

    def sample(self, reps):
        ev = []
        for _ in range(reps):
            e0, e1 = torch.cuda.Event(True), torch.cuda.Event(True)
            e0.record()
            self.replay()
            e1.record()
            ev.append((e0, e1))
        torch.cuda.synchronize()
        return [a.elapsed_time(b) / self.k for a, b in ev]


def ceilings():
    """Measured roofs: device copy (read + write bytes) and cuBLAS matrix products."""
    r = {}

    def med(f, n=12, w=4):
        for _ in range(w):
            f()
        ts = []
        for _ in range(n):
            a, b = torch.cuda.Event(True), torch.cuda.Event(True)
            a.record()
            f()
            b.record()
            torch.cuda.synchronize()
            ts.append(a.elapsed_time(b))
        return sorted(ts)[n // 2]

    x = torch.empty(2 << 30, dtype=torch.uint8, device="cuda").random_(0, 255)
    y = torch.empty_like(x)
    r["copy_GBs"] = 2 * x.numel() / med(lambda: y.copy_(x)) / 1e6
    del x, y
    n = 8192
    a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    o = torch.empty_like(a)
    r["bf16_TFLOPs"] = 2 * n ** 3 / med(lambda: torch.mm(a, b.t(), out=o)) / 1e9
    try:
        a8, b8 = a.to(O.FP8), b.to(O.FP8)
        one = torch.ones(1, device="cuda")
        r["fp8_TFLOPs"] = 2 * n ** 3 / med(lambda: torch._scaled_mm(a8, b8.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)) / 1e9
    except Exception as e:
        r["fp8_error"] = str(e)[:200]
    torch.cuda.empty_cache()
    return r


def environment():
    import platform
    import subprocess
    p = torch.cuda.get_device_properties(0)
    env = dict(device=p.name, sms=p.multi_processor_count, l2_MB=p.L2_cache_size >> 20, torch=torch.__version__,
               cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(), python=platform.python_version(),
               libc="-".join(platform.libc_ver()))
    try:
        env["driver"] = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                                       capture_output=True, text=True, timeout=20).stdout.strip()
    except Exception:
        pass
    for m in ("triton", "flashinfer", "deep_gemm"):
        try:
            env[m] = __import__(m).__version__
        except Exception as e:
            env[m] = f"absent ({type(e).__name__})"
    return env


def load_candidate(path):
    spec = importlib.util.spec_from_file_location("candidate", path)
    mod = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mod)
    return mod


def candidates(mod, op):
    """The candidate's functions for an operator, each a peer: ``OP``, and its variants ``OP__VARIANT``."""
    found = {}
    for name in dir(mod):
        base, _, variant = name.partition("__")
        if base == op and callable(getattr(mod, name)):
            found[f"{OURS}:{variant}" if variant else OURS] = candidate_factory(mod, name)
    return found


def candidate_factory(mod, name):
    f = getattr(mod, name)
    plan = getattr(mod, name + "_plan", None) or getattr(mod, name.partition("__")[0] + "_plan", None)

    def make(case):
        if plan is None:
            return lambda a: f(**a)
        st = plan(**case.args(0))
        return lambda a: f(plan=st, **a)
    return make


def key_of(op, p, peer):
    return json.dumps([op, p, peer], sort_keys=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--suite", default="all", help="comma list of suites (see --list); suite:op takes one operator of it")
    ap.add_argument("--op", default="", help="only these operators (comma list)")
    ap.add_argument("--peers", default="", help="only these peers (comma list of name prefixes)")
    ap.add_argument("--skip-peers", default="", help="leave these peers out (comma list of names)")
    ap.add_argument("--candidate", help="Python module with functions named like the operators")
    ap.add_argument("--out", default="results.jsonl")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--quick", action="store_true", help="every third shape, fewer repetitions")
    ap.add_argument("--shapes", help="JSON list of shape dicts that replaces a suite's shapes (with --op)")
    ap.add_argument("--resume", action="store_true", help="skip results already in --out; a peer that crashed the process is not retried")
    ap.add_argument("--deadline", type=float, default=0, help="seconds after which remaining cases are skipped")
    ap.add_argument("--max-gib", type=float, default=60, help="memory for the rotating input sets of one case")
    ap.add_argument("--rounds", type=int, default=0, help="rounds over all peers, each in a new random order (12; 6 with --quick)")
    ap.add_argument("--seed", type=int, default=20)
    args = ap.parse_args()

    if args.list:
        for s, items in O.SUITES.items():
            print(f"{s}:")
            for n in dict.fromkeys(o for o, _ in items):
                print(f"  {n}({O.OPS[n].args})  [{sum(o == n for o, _ in items)} shapes]  peers: {', '.join(P.PEERS.get(n, {}))}")
        return 0

    t_start = time.time()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_grad_enabled(False)
    done, inflight = set(), args.out + ".inflight"
    log = open(args.out, "a")

    def emit(rec):
        log.write(json.dumps(rec) + "\n")
        log.flush()

    if args.resume and os.path.exists(args.out):
        for line in open(args.out):
            try:
                r = json.loads(line)
                if "peer" in r:
                    done.add(key_of(r["op"], r["p"], r["peer"]))
            except json.JSONDecodeError:
                pass
        if os.path.exists(inflight):
            r = json.loads(open(inflight).read())
            os.remove(inflight)
            emit({**r, "error": "crashed or hung the process"})
            done.add(key_of(r["op"], r["p"], r["peer"]))
    env = environment()
    roof = ceilings()
    emit({"env": env, "ceilings": roof, "argv": sys.argv[1:], "time": time.strftime("%F %T")})
    print(json.dumps(env), "\nceilings:", {k: round(v, 1) if isinstance(v, float) else v for k, v in roof.items()}, flush=True)

    cand = load_candidate(args.candidate) if args.candidate else None
    suites = list(O.SUITES) if args.suite == "all" else args.suite.split(",")
    only_ops = set(filter(None, args.op.split(",")))
    prefixes = tuple(filter(None, args.peers.split(",")))
    target_ms, reps, rounds = (1.0, 2, 6) if args.quick else (2.0, 2, 12)
    rounds = args.rounds or rounds
    order = random.Random(args.seed)
    dead_peers, skip = {}, set(filter(None, args.skip_peers.split(",")))

    for sname in suites:
        sname, _, one = sname.partition(":")
        items = [(o, p) for o, p in O.SUITES[sname] if (not only_ops or o in only_ops) and one in ("", o)]
        if args.shapes:
            items = [(o, p) for o in dict.fromkeys(o for o, _ in items) for p in json.loads(args.shapes)]
        if args.quick:
            items = items[::3]
        print(f"\n== {sname}", flush=True)
        for oname, p in items:
            if args.deadline and time.time() - t_start > args.deadline:
                emit({"suite": sname, "op": oname, "p": p, "skipped": "deadline"})
                continue
            op = O.OPS[oname]
            facs = {k: v for k, v in P.PEERS.get(oname, {}).items() if (not prefixes or k.startswith(prefixes)) and k not in skip}
            if cand is not None:
                facs.update(candidates(cand, oname))
            facs = {k: v for k, v in facs.items() if key_of(oname, p, k) not in done and (oname, k) not in dead_peers}
            if not facs:
                continue
            try:
                case = Case(op, p, args.seed, args.max_gib * 2 ** 30)
            except Exception as e:
                emit({"suite": sname, "op": oname, "p": p, "error": f"inputs: {e}"[:300]})
                print(oname, p, "inputs failed:", str(e)[:200], flush=True)
                torch.cuda.empty_cache()
                continue
            recs, timers = {}, {}
            for peer, fac in facs.items():
                r = recs[peer] = {"suite": sname, "op": oname, "p": p, "peer": peer}
                open(inflight, "w").write(json.dumps(r))
                try:
                    t0 = time.perf_counter()
                    fn = fac(case)
                    torch.cuda.synchronize()
                    r["prepare_s"] = round(time.perf_counter() - t0, 4)
                    if getattr(fn, "note", None):
                        r["note"] = fn.note
                    t0 = time.perf_counter()
                    fn({**case.args(0), **{k: case.sets[0][k].clone() for k in op.inplace}})
                    torch.cuda.synchronize()
                    r["first_call_s"] = round(time.perf_counter() - t0, 4)
                    r.update(verify(case, fn))
                    timers[peer] = Timer(case, fn, target_ms)
                    if hasattr(timers[peer], "graph_error"):
                        r["graph_error"] = timers[peer].graph_error
                except P.Unavailable as e:
                    r["unavailable"] = str(e)[:300]
                    if e.everywhere:
                        dead_peers[(oname, peer)] = str(e)
                except Exception as e:
                    r["error"] = f"{type(e).__name__}: {e}"[:400]
                    if os.environ.get("BENCH_TRACE"):
                        traceback.print_exc()
                    if "CUDA error" in str(e) or "illegal memory" in str(e) or "launch failure" in str(e):
                        print(f"{oname} {p} {peer}: {r['error']} -- context lost", flush=True)
                        os._exit(3)
                os.path.exists(inflight) and os.remove(inflight)
            samples = {k: [] for k in timers}
            for _ in range(rounds):          # a kernel's clock depends on what ran before it: no fixed order
                turn = list(timers)
                order.shuffle(turn)
                for k in turn:
                    samples[k] += timers[k].sample(reps)
            fl, by = op.flops(p), op.nbytes(p)
            peak = roof.get("fp8_TFLOPs" if "fp8" in oname else "bf16_TFLOPs", roof["bf16_TFLOPs"])
            floor = max(fl / (peak * 1e9), by / (roof["copy_GBs"] * 1e6))     # ms
            for k, r in recs.items():
                if k in samples:
                    s = sorted(samples[k])
                    ms = s[len(s) // 2]
                    r.update(ms=ms, lo=s[0], hi=s[-1], calls=timers[k].k, method=timers[k].method, sets=len(case.sets),
                             cold=case.cold, tflops=fl / ms / 1e9, gbs=by / ms / 1e6, roof=floor / ms,
                             bound="mem" if by / (roof["copy_GBs"] * 1e6) >= fl / (peak * 1e9) else "compute")
                emit(r)
            show(oname, p, recs)
            del timers, case
            gc.collect()
            if torch.cuda.memory_reserved() > 60 << 30:
                torch.cuda.empty_cache()
    print(f"\ntotal {time.time() - t_start:.0f} s", flush=True)
    return 0


def show(oname, p, recs):
    good = {k: r for k, r in recs.items() if "ms" in r and r.get("ok")}
    peers = {k: r for k, r in good.items() if k.partition(":")[0] != OURS}
    best = min(peers, key=lambda k: peers[k]["ms"]) if peers else None
    parts = []
    for k, r in recs.items():
        if "ms" in r:
            parts.append(f"{'*' if k == best else ''}{k} {r['ms'] * 1e3:.1f}us {r['tflops']:.0f}TF {r['gbs']:.0f}GB/s "
                         f"{100 * r['roof']:.0f}%{'' if r['ok'] else ' WRONG(%.3g,nan=%d)' % (r['rel_err'], r['unwritten_or_nan'])}"
                         f"{'' if r['method'] == 'graph' else ' [events]'}")
        else:
            parts.append(f"{k} -- {r.get('unavailable') or r.get('error')}"[:160])
    line = f"{oname} {' '.join(f'{a}={b}' for a, b in p.items())} | " + " | ".join(parts)
    ours = {k: r for k, r in good.items() if k not in peers}
    if ours and best:
        ratios = ", ".join(f"{k.partition(':')[2] or OURS} {peers[best]['ms'] / r['ms']:.3f}x" for k, r in ours.items())
        line += f" || speed against the best peer ({best}): {ratios}"
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
