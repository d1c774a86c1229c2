"""Plain Triton kernels in the style of its tutorials: matmul, flash attention, fused MoE, softmax.

Fixed block sizes by problem size (no autotuning), so they start quickly; they
stand for "what one writes in Triton in an afternoon", not for its best result.
"""
import torch
import triton
import triton.language as tl


@triton.jit
def _matmul(A, B, C, M, N, K, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):
    pid = tl.program_id(0)
    nm, nn = tl.cdiv(M, BM), tl.cdiv(N, BN)
    per = G * nn
    first = (pid // per) * G
    size = min(nm - first, G)
    pm = first + (pid % per) % size
    pn = (pid % per) // size
    rm, rn, rk = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    a = A + (rm % M)[:, None].to(tl.int64) * sa + rk[None, :]
    b = B + (rn % N)[None, :].to(tl.int64) * sb + rk[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BK
        b += BK
    c = C + rm[:, None].to(tl.int64) * sc + rn[None, :]
    tl.store(c, acc.to(C.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


def matmul(a, b, out):
    """out = a @ b.T; K must be a multiple of 64."""
    (m, k), n = a.shape, b.shape[0]
    if m <= 16:
        bm, bn, bk, w, s = 16, 64, 128, 4, 5
    elif m <= 64:
        bm, bn, bk, w, s = 64, 64, 128, 4, 4
    else:
        bm, bn, bk, w, s = 128, 256, 64, 8, 3
    grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
    _matmul[grid](a, b, out, m, n, k, a.stride(0), b.stride(0), out.stride(0), bm, bn, bk, 8, num_warps=w, num_stages=s)


@triton.jit
def _fa(Q, K, V, Out, scale, S, GRP: tl.constexpr, HQ: tl.constexpr, HK: tl.constexpr, D: tl.constexpr,
        CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    pm = tl.num_programs(0) - 1 - tl.program_id(0)
    bh = tl.program_id(1)
    b, h = bh // HQ, bh % HQ
    rm, rd = pm * BM + tl.arange(0, BM), tl.arange(0, D)
    base = b.to(tl.int64) * S
    q = tl.load(Q + (base + rm)[:, None] * (HQ * D) + h * D + rd[None, :], mask=rm[:, None] < S, other=0.0)
    rn = tl.arange(0, BN)
    kp = K + (base + rn)[None, :] * (HK * D) + (h // GRP) * D + rd[:, None]
    vp = V + (base + rn)[:, None] * (HK * D) + (h // GRP) * D + rd[None, :]
    m = tl.full((BM,), -float("inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    qs = scale * 1.4426950408889634
    full = (pm * BM) // BN * BN if CAUSAL else S
    for n in range(0, full, BN):
        s = tl.dot(q, tl.load(kp)) * qs
        mn = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - mn[:, None])
        al = tl.exp2(m - mn)
        l = l * al + tl.sum(p, 1)
        acc = tl.dot(p.to(V.dtype.element_ty), tl.load(vp), acc * al[:, None])
        m = mn
        kp += BN * HK * D
        vp += BN * HK * D
    if CAUSAL:
        for n in range(full, min((pm + 1) * BM, S), BN):
            s = tl.dot(q, tl.load(kp)) * qs
            s = tl.where(rm[:, None] >= n + rn[None, :], s, -float("inf"))
            mn = tl.maximum(m, tl.max(s, 1))
            p = tl.exp2(s - mn[:, None])
            al = tl.exp2(m - mn)
            l = l * al + tl.sum(p, 1)
            acc = tl.dot(p.to(V.dtype.element_ty), tl.load(vp), acc * al[:, None])
            m = mn
            kp += BN * HK * D
            vp += BN * HK * D
    o = acc / l[:, None]
    tl.store(Out + (base + rm)[:, None] * (HQ * D) + h * D + rd[None, :], o.to(Out.dtype.element_ty), mask=rm[:, None] < S)


def flash_attention(q, k, v, out, batch, seq, causal, scale):
    """q [T,Hq,D], k/v [T,Hk,D]; all requests of length seq, a multiple of 128."""
    hq, hk, d = q.shape[1], k.shape[1], q.shape[2]
    _fa[(triton.cdiv(seq, 128), batch * hq)](q, k, v, out, scale, seq, hq // hk, hq, hk, d, causal, 128, 128 if d <= 64 else 64,
                                             num_warps=8, num_stages=3)


@triton.jit
def _moe_gemm(A, W, C, ids, experts, tw, N, K, n_slots, sw, TOPK: tl.constexpr, A_PER_SLOT: tl.constexpr,
              GATED: tl.constexpr, SCALE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pn, pm = tl.program_id(0), tl.program_id(1)
    e = tl.load(experts + pm)
    if e < 0:
        return
    slot = tl.load(ids + pm * BM + tl.arange(0, BM))
    ok = slot < n_slots
    row = slot if A_PER_SLOT else slot // TOPK
    rn, rk = pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    a = A + row[:, None].to(tl.int64) * K + rk[None, :]
    w = W + e.to(tl.int64) * sw + rn[None, :].to(tl.int64) * K + rk[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    if GATED:
        up = w + N.to(tl.int64) * K
        acu = tl.zeros((BM, BN), tl.float32)
        for _ in range(0, K, BK):
            x = tl.load(a, mask=ok[:, None], other=0.0)
            acc = tl.dot(x, tl.load(w), acc)
            acu = tl.dot(x, tl.load(up), acu)
            a += BK
            w += BK
            up += BK
        acc = acc * tl.sigmoid(acc) * acu
    else:
        for _ in range(0, K, BK):
            acc = tl.dot(tl.load(a, mask=ok[:, None], other=0.0), tl.load(w), acc)
            a += BK
            w += BK
    if SCALE:
        acc = acc * tl.load(tw + slot, mask=ok, other=0.0)[:, None]
    tl.store(C + slot[:, None].to(tl.int64) * N + rn[None, :], acc.to(C.dtype.element_ty), mask=ok[:, None])


@triton.jit
def _moe_sum(Y, Out, H, TOPK: tl.constexpr, BH: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BH + tl.arange(0, BH)
    acc = tl.zeros((BH,), tl.float32)
    for j in tl.static_range(TOPK):
        acc += tl.load(Y + (t * TOPK + j) * H + c, mask=c < H, other=0.0).to(tl.float32)
    tl.store(Out + t * H + c, acc.to(Out.dtype.element_ty), mask=c < H)


def _align(ids, n_exp, bm):
    """Slots sorted by expert, every expert padded to a multiple of bm; no host sync."""
    flat = ids.flatten().long()
    n = flat.numel()
    dev = ids.device
    cnt = torch.zeros(n_exp, dtype=torch.int64, device=dev).scatter_add_(0, flat, torch.ones_like(flat))
    pad = (cnt + bm - 1) // bm * bm
    end = pad.cumsum(0)
    start = end - pad
    order = torch.argsort(flat, stable=True)
    e = flat[order]
    pos = torch.arange(n, device=dev) - (cnt.cumsum(0) - cnt)[e]
    blocks = min(n + n_exp * (bm - 1), n * bm)
    blocks = (blocks + bm - 1) // bm
    sorted_ids = torch.full((blocks * bm,), n, dtype=torch.int32, device=dev)
    sorted_ids[start[e] + pos] = order.int()
    first = torch.arange(blocks, device=dev) * bm
    exp = torch.searchsorted(end, first, right=True)
    return sorted_ids, torch.where(first < end[-1], exp, -1).int(), blocks


def fused_moe(x, w13, w2, topk_ids, topk_weights, out):
    (t, h), (n_exp, two_i, _), k = x.shape, w13.shape, topk_ids.shape[1]
    i = two_i // 2
    avg = t * k / n_exp
    bm, bn, bk, nw, ns = (16, 64, 128, 4, 4) if avg <= 24 else (64, 128, 64, 8, 3) if avg <= 96 else (128, 128, 64, 8, 3)
    ids, experts, blocks = _align(topk_ids, n_exp, bm)
    hid = torch.empty(t * k, i, dtype=x.dtype, device=x.device)
    y = torch.empty(t * k, h, dtype=x.dtype, device=x.device)
    _moe_gemm[(i // bn, blocks)](x, w13, hid, ids, experts, topk_weights, i, h, t * k, w13.stride(0), k, False, True, False,
                                 bm, bn, bk, num_warps=nw, num_stages=ns)
    bn2 = bn if bm == 16 else 256 if bm == 128 else bn
    _moe_gemm[(h // bn2, blocks)](hid, w2, y, ids, experts, topk_weights, h, i, t * k, w2.stride(0), k, True, False, True,
                                  bm, bn2, bk, num_warps=nw, num_stages=ns)
    _moe_sum[(t, triton.cdiv(h, 1024))](y, out, h, k, 1024)


@triton.jit
def _softmax(X, Y, sx, sy, H, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, B)
    x = tl.load(X + row * sx + col, mask=col < H, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(Y + row * sy + col, (e / tl.sum(e, 0)).to(Y.dtype.element_ty), mask=col < H)


def softmax(x, out):
    """Softmax of rows that fit a block whole."""
    t, h = x.shape
    _softmax[(t,)](x, out, x.stride(0), out.stride(0), h, triton.next_power_of_2(h), num_warps=8)
