"""Operator contracts: inputs, fp32 references, costs and shape suites.

Every operator is a subclass of ``Op``.  The same keyword arguments are handed
to the peers and to a candidate; output tensors are pre-allocated and poisoned
by the harness, so an implementation must write every element of them.
"""
import math

import torch

BF16, F32, I32, FP8 = torch.bfloat16, torch.float32, torch.int32, torch.float8_e4m3fn
DEV = "cuda"
OPS = {}
SUITES = {}


def register(cls):
    OPS[cls.name] = cls()
    return cls


def suite(name, op, shapes):
    SUITES.setdefault(name, []).extend((op, s) for s in shapes)


class Ctx:
    """Random tensors from one seeded device generator."""

    def __init__(self, seed):
        self.g = torch.Generator(device=DEV)
        self.g.manual_seed(seed)

    def randn(self, *shape, dtype=BF16, std=1.0):
        t = torch.empty(shape, dtype=dtype if dtype != FP8 else BF16, device=DEV)
        t.normal_(0.0, std, generator=self.g)
        return t.to(FP8) if dtype == FP8 else t

    def rand(self, *shape):
        return torch.rand(shape, device=DEV, generator=self.g)

    def perm(self, n):
        return torch.randperm(n, device=DEV, generator=self.g)


class Op:
    name = ""
    args = ""            # human-readable contract, printed by --list
    tol = 2e-2           # relative Frobenius error accepted
    inplace = ()         # arguments the operator updates in place
    sets = 0             # fixed number of rotating sets (0: from the memory footprint)

    def meta(self, c, p):
        """Arguments shared by all rotating input sets (indices, scalars)."""
        return {}

    def data(self, c, p):
        """Arguments drawn anew for every rotating input set."""
        raise NotImplementedError

    def outs(self, p):
        """name -> (shape, dtype) of pre-allocated outputs."""
        return {}

    def check(self, a, res, p):
        """Return {'rel_err': .., 'ok': ..}; ``a`` inputs as given, ``res`` results."""
        worst = 0.0
        for name, sel, ref in self.ref(a, p):
            x = res[name] if sel is None else sel(res[name])
            x, ref = x.double(), ref.double()
            worst = max(worst, ((x - ref).norm() / ref.norm().clamp_min(1e-30)).item())
        return {"rel_err": worst, "ok": worst == worst and worst < self.tol}

    def ref(self, a, p):
        raise NotImplementedError

    def flops(self, p):
        return 0

    def nbytes(self, p):
        return 0


def rows_subset(m, n=256):
    if m <= n:
        return torch.arange(m, device=DEV)
    g = torch.Generator(device="cpu")
    g.manual_seed(7)
    r = torch.randperm(m, generator=g)[: n - 64]
    r = torch.cat([r, torch.arange(32), torch.arange(m - 32, m)])
    return torch.unique(r).to(DEV)


# --------------------------------------------------------------------- GEMM
@register
class GemmBf16(Op):
    name = "gemm_bf16"
    args = "a[M,K] bf16, b[N,K] bf16, out[M,N] bf16: out = a @ b.T (fp32 accumulation)"
    tol = 1e-2

    def data(self, c, p):
        return dict(a=c.randn(p["M"], p["K"]), b=c.randn(p["N"], p["K"], std=p["K"] ** -0.5))

    def outs(self, p):
        return dict(out=((p["M"], p["N"]), BF16))

    def ref(self, a, p):
        r = rows_subset(p["M"])
        yield "out", lambda x: x[r], a["a"][r].float() @ a["b"].float().T

    def flops(self, p):
        return 2 * p["M"] * p["N"] * p["K"]

    def nbytes(self, p):
        return 2 * (p["M"] * p["K"] + p["N"] * p["K"] + p["M"] * p["N"])


def quant_rows(x):
    s = x.float().abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448.0
    return (x.float() / s).to(FP8), s


def quant_1x128(x):
    m, k = x.shape
    v = x.float().view(m, k // 128, 128)
    s = v.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448.0
    return (v / s).to(FP8).view(m, k), s.view(m, k // 128).contiguous()


def quant_128x128(x):
    n, k = x.shape
    v = x.float().view(n // 128, 128, k // 128, 128)
    s = v.abs().amax((1, 3), keepdim=True).clamp_min(1e-12) / 448.0
    return (v / s).to(FP8).view(n, k), s.view(n // 128, k // 128).contiguous()


class GemmFp8(GemmBf16):
    tol = 2e-2

    def nbytes(self, p):
        return p["M"] * p["K"] + p["N"] * p["K"] + 2 * p["M"] * p["N"]


@register
class GemmFp8Tensor(GemmFp8):
    name = "gemm_fp8_tensor"
    args = ("a[M,K] e4m3, b[N,K] e4m3, scale_a[1] f32, scale_b[1] f32, out[M,N] bf16: "
            "out = (a*scale_a) @ (b*scale_b).T")

    def data(self, c, p):
        a, b = c.randn(p["M"], p["K"]), c.randn(p["N"], p["K"], std=p["K"] ** -0.5)
        sa, sb = a.abs().amax().float() / 448, b.abs().amax().float() / 448
        return dict(a=(a.float() / sa).to(FP8), b=(b.float() / sb).to(FP8),
                    scale_a=sa.view(1), scale_b=sb.view(1))

    def ref(self, a, p):
        r = rows_subset(p["M"])
        yield ("out", lambda x: x[r],
               (a["a"][r].float() * a["scale_a"]) @ (a["b"].float() * a["scale_b"]).T)


@register
class GemmFp8Row(GemmFp8):
    name = "gemm_fp8_row"
    args = ("a[M,K] e4m3, b[N,K] e4m3, scale_a[M,1] f32, scale_b[N,1] f32, out[M,N] bf16: "
            "out = (a*scale_a) @ (b*scale_b).T")

    def data(self, c, p):
        a, sa = quant_rows(c.randn(p["M"], p["K"]))
        b, sb = quant_rows(c.randn(p["N"], p["K"], std=p["K"] ** -0.5))
        return dict(a=a, b=b, scale_a=sa, scale_b=sb)

    def ref(self, a, p):
        r = rows_subset(p["M"])
        yield ("out", lambda x: x[r],
               (a["a"][r].float() * a["scale_a"][r]) @ (a["b"].float() * a["scale_b"]).T)


@register
class GemmFp8Block(GemmFp8):
    name = "gemm_fp8_block"
    args = ("a[M,K] e4m3, b[N,K] e4m3, scale_a[M,K/128] f32, scale_b[N/128,K/128] f32, "
            "out[M,N] bf16: 1x128 activation scales, 128x128 weight scales")

    def data(self, c, p):
        a, sa = quant_1x128(c.randn(p["M"], p["K"]))
        b, sb = quant_128x128(c.randn(p["N"], p["K"], std=p["K"] ** -0.5))
        return dict(a=a, b=b, scale_a=sa, scale_b=sb)

    def ref(self, a, p):
        r = rows_subset(p["M"])
        m, k = len(r), p["K"]
        x = (a["a"][r].float().view(m, k // 128, 128) * a["scale_a"][r].unsqueeze(-1)).view(m, k)
        w = a["b"].float().view(p["N"] // 128, 128, k // 128, 128)
        w = (w * a["scale_b"].view(p["N"] // 128, 1, k // 128, 1)).view(p["N"], k)
        yield "out", lambda y: y[r], x @ w.T


@register
class GroupedGemmBf16(Op):
    name = "grouped_gemm_bf16"
    args = ("a[M,K] bf16 (rows sorted by expert, each expert padded to 128 rows), b[E,N,K] bf16, "
            "offs[E] i32 (inclusive row ends), row_expert[M] i32, out[M,N] bf16")
    tol = 1e-2

    def meta(self, c, p):
        per = p["M"] // p["E"]
        assert per % 128 == 0
        offs = torch.arange(1, p["E"] + 1, device=DEV, dtype=I32) * per
        return dict(offs=offs,
                    row_expert=torch.arange(p["E"], device=DEV, dtype=I32).repeat_interleave(per))

    def data(self, c, p):
        return dict(a=c.randn(p["M"], p["K"]), b=c.randn(p["E"], p["N"], p["K"], std=p["K"] ** -0.5))

    def outs(self, p):
        return dict(out=((p["M"], p["N"]), BF16))

    def ref(self, a, p):
        r = rows_subset(p["M"], 128)
        e = a["row_expert"][r].long()
        ref = torch.stack([a["b"][ei].float() @ a["a"][ri].float() for ri, ei in zip(r.tolist(), e.tolist())])
        yield "out", lambda x: x[r], ref

    def flops(self, p):
        return 2 * p["M"] * p["N"] * p["K"]

    def nbytes(self, p):
        return 2 * (p["M"] * p["K"] + p["E"] * p["N"] * p["K"] + p["M"] * p["N"])


# ---------------------------------------------------------------- attention
def sdpa_rows(q, k, v, scale, qpos=None):
    """q [R,D], k/v [S,D] fp32; rows see keys <= qpos when given."""
    s = (q @ k.T) * scale
    if qpos is not None:
        s.masked_fill_(torch.arange(k.shape[0], device=k.device)[None, :] > qpos[:, None], -math.inf)
    return torch.softmax(s, -1) @ v


def page_table(c, lens, page):
    n = [(x + page - 1) // page for x in lens]
    indptr = torch.tensor([0] + n).cumsum(0).to(I32)
    idx = c.perm(int(indptr[-1])).to(I32)
    last = torch.tensor([(x - 1) % page + 1 for x in lens], dtype=I32)
    return indptr.to(DEV), idx, last.to(DEV), int(indptr[-1])


class AttnPrefillBase(Op):
    def lens(self, p):
        return [p["S"]] * p["B"]

    def ref_heads(self, a, p, kv):
        B, S, Hq, Hk = p["B"], p["S"], p["Hq"], p["Hk"]
        rows = rows_subset(S, 384)
        for b in sorted({0, B - 1}):
            k, v = kv(b)
            for h in sorted({0, Hq - 1}):
                q = a["q"][b * S + rows, h].float()
                kh = h // (Hq // Hk)
                o = sdpa_rows(q, k[:, kh].float(), v[:, kh].float(), a["sm_scale"],
                              rows if p["causal"] else None)
                yield "out", (lambda x, b=b, h=h: x[b * S + rows, h]), o

    def flops(self, p):
        f = 4 * p["B"] * p["Hq"] * p["S"] * p["S"] * p["D"]
        return f // 2 if p["causal"] else f

    def nbytes(self, p):
        t = p["B"] * p["S"]
        return 2 * t * p["D"] * (2 * p["Hq"] + 2 * p["Hk"])

    def outs(self, p):
        return dict(out=((p["B"] * p["S"], p["Hq"], p["D"]), BF16))


@register
class AttnPrefill(AttnPrefillBase):
    name = "attn_prefill"
    args = ("q[T,Hq,D] bf16, k[T,Hk,D] bf16, v[T,Hk,D] bf16, cu_q[B+1] i32, cu_kv[B+1] i32, "
            "causal bool, sm_scale float, max_len int, out[T,Hq,D] bf16 (ragged, all requests of one length)")

    def meta(self, c, p):
        cu = (torch.arange(p["B"] + 1, device=DEV) * p["S"]).to(I32)
        return dict(cu_q=cu, cu_kv=cu.clone(), causal=bool(p["causal"]), sm_scale=p["D"] ** -0.5, max_len=p["S"])

    def data(self, c, p):
        t = p["B"] * p["S"]
        return dict(q=c.randn(t, p["Hq"], p["D"]), k=c.randn(t, p["Hk"], p["D"]), v=c.randn(t, p["Hk"], p["D"]))

    def ref(self, a, p):
        S = p["S"]
        return self.ref_heads(a, p, lambda b: (a["k"][b * S:(b + 1) * S], a["v"][b * S:(b + 1) * S]))


@register
class AttnPrefillPaged(AttnPrefillBase):
    name = "attn_prefill_paged"
    args = ("q[T,Hq,D] bf16, k_pages[P,page,Hk,D] bf16, v_pages[P,page,Hk,D] bf16, cu_q[B+1] i32, "
            "kv_indptr[B+1] i32, kv_indices[P] i32, kv_last_page_len[B] i32, page_size int, causal bool, "
            "sm_scale float, max_len int, out[T,Hq,D] bf16")

    def meta(self, c, p):
        indptr, idx, last, self._np = page_table(c, self.lens(p), p["page"])
        cu = (torch.arange(p["B"] + 1, device=DEV) * p["S"]).to(I32)
        return dict(cu_q=cu, kv_indptr=indptr, kv_indices=idx, kv_last_page_len=last, page_size=p["page"],
                    causal=bool(p["causal"]), sm_scale=p["D"] ** -0.5, max_len=p["S"])

    def data(self, c, p):
        sh = (self._np, p["page"], p["Hk"], p["D"])
        return dict(q=c.randn(p["B"] * p["S"], p["Hq"], p["D"]), k_pages=c.randn(*sh), v_pages=c.randn(*sh))

    def ref(self, a, p):
        def kv(b):
            i = a["kv_indices"][a["kv_indptr"][b]:a["kv_indptr"][b + 1]].long()
            return a["k_pages"][i].flatten(0, 1)[: p["S"]], a["v_pages"][i].flatten(0, 1)[: p["S"]]
        return self.ref_heads(a, p, kv)


@register
class AttnDecode(Op):
    name = "attn_decode"
    args = ("q[B,Hq,D] bf16, k_pages[P,page,Hk,D] bf16, v_pages[P,page,Hk,D] bf16, kv_indptr[B+1] i32, "
            "kv_indices[P] i32, kv_last_page_len[B] i32, page_size int, sm_scale float, out[B,Hq,D] bf16")

    def meta(self, c, p):
        lens = [p["kv"]] * p["B"]
        if p.get("varlen"):     # linear ramp kv/8 .. kv, same mean for every implementation
            lens = [max(1, int(p["kv"] * (0.125 + 0.875 * i / max(1, p["B"] - 1)))) for i in range(p["B"])]
        self._lens = lens
        indptr, idx, last, self._np = page_table(c, lens, p["page"])
        return dict(kv_indptr=indptr, kv_indices=idx, kv_last_page_len=last, page_size=p["page"],
                    sm_scale=p["D"] ** -0.5)

    def data(self, c, p):
        sh = (self._np, p["page"], p["Hk"], p["D"])
        return dict(q=c.randn(p["B"], p["Hq"], p["D"]), k_pages=c.randn(*sh), v_pages=c.randn(*sh))

    def outs(self, p):
        return dict(out=((p["B"], p["Hq"], p["D"]), BF16))

    def ref(self, a, p):
        g = p["Hq"] // p["Hk"]
        for b in sorted({0, p["B"] // 2, p["B"] - 1}):
            i = a["kv_indices"][a["kv_indptr"][b]:a["kv_indptr"][b + 1]].long()
            n = self._lens[b]
            k = a["k_pages"][i].flatten(0, 1)[:n].float()
            v = a["v_pages"][i].flatten(0, 1)[:n].float()
            q = a["q"][b].float().view(p["Hk"], g, p["D"])
            s = torch.einsum("hgd,nhd->hgn", q, k) * a["sm_scale"]
            o = torch.einsum("hgn,nhd->hgd", torch.softmax(s, -1), v).reshape(p["Hq"], p["D"])
            yield "out", (lambda x, b=b: x[b]), o

    def _tok(self, p):
        return sum(self._lens)

    def flops(self, p):
        return 4 * self._tok(p) * p["Hq"] * p["D"]

    def nbytes(self, p):
        return 2 * self._tok(p) * p["Hk"] * p["D"] * 2 + 4 * p["B"] * p["Hq"] * p["D"]


@register
class MlaDecode(Op):
    name = "mla_decode"
    args = ("q_nope[B,H,512] bf16, q_pe[B,H,64] bf16, ckv_pages[P,page,512] bf16, kpe_pages[P,page,64] bf16, "
            "kv_indptr[B+1] i32, kv_indices[P] i32, kv_len[B] i32, page_size int, sm_scale float, "
            "out[B,H,512] bf16 (absorbed MLA: keys = [ckv|kpe], values = ckv)")

    def meta(self, c, p):
        indptr, idx, _, self._np = page_table(c, [p["kv"]] * p["B"], p["page"])
        return dict(kv_indptr=indptr, kv_indices=idx,
                    kv_len=torch.full((p["B"],), p["kv"], dtype=I32, device=DEV),
                    page_size=p["page"], sm_scale=192 ** -0.5)

    def data(self, c, p):
        return dict(q_nope=c.randn(p["B"], p["H"], 512, std=0.5), q_pe=c.randn(p["B"], p["H"], 64, std=0.5),
                    ckv_pages=c.randn(self._np, p["page"], 512), kpe_pages=c.randn(self._np, p["page"], 64))

    def outs(self, p):
        return dict(out=((p["B"], p["H"], 512), BF16))

    def ref(self, a, p):
        for b in sorted({0, p["B"] - 1}):
            i = a["kv_indices"][a["kv_indptr"][b]:a["kv_indptr"][b + 1]].long()
            ckv = a["ckv_pages"][i].flatten(0, 1)[: p["kv"]].float()
            kpe = a["kpe_pages"][i].flatten(0, 1)[: p["kv"]].float()
            s = (a["q_nope"][b].float() @ ckv.T + a["q_pe"][b].float() @ kpe.T) * a["sm_scale"]
            yield "out", (lambda x, b=b: x[b]), torch.softmax(s, -1) @ ckv

    def flops(self, p):
        return 2 * p["B"] * p["H"] * p["kv"] * (576 + 512)

    def nbytes(self, p):
        return 2 * p["B"] * p["kv"] * 576 + 2 * p["B"] * p["H"] * (576 + 512)


@register
class CascadeDecode(Op):
    name = "cascade_decode"
    args = ("q[B,Hq,D] bf16, kv_pages[P,2,page,Hk,D] bf16, prefix_indices[S/page] i32, suffix_indptr[B+1] i32, "
            "suffix_indices i32, suffix_last_page_len[B] i32, page_size int, sm_scale float, out[B,Hq,D] bf16 "
            "(one prefix of S tokens shared by all requests + U own tokens each)")

    def meta(self, c, p):
        page = p["page"]
        npre, nsuf = p["S"] // page, p["U"] // page
        perm = c.perm(npre + p["B"] * nsuf).to(I32)
        self._np = len(perm)
        return dict(prefix_indices=perm[:npre].contiguous(),
                    suffix_indptr=(torch.arange(p["B"] + 1, device=DEV) * nsuf).to(I32),
                    suffix_indices=perm[npre:].contiguous(),
                    suffix_last_page_len=torch.full((p["B"],), page, dtype=I32, device=DEV),
                    page_size=page, sm_scale=p["D"] ** -0.5)

    def data(self, c, p):
        return dict(q=c.randn(p["B"], p["Hq"], p["D"]), kv_pages=c.randn(self._np, 2, p["page"], p["Hk"], p["D"]))

    def outs(self, p):
        return dict(out=((p["B"], p["Hq"], p["D"]), BF16))

    def ref(self, a, p):
        g = p["Hq"] // p["Hk"]
        for b in sorted({0, p["B"] - 1}):
            i = torch.cat([a["prefix_indices"],
                           a["suffix_indices"][a["suffix_indptr"][b]:a["suffix_indptr"][b + 1]]]).long()
            kv = a["kv_pages"][i].float()
            k, v = kv[:, 0].flatten(0, 1), kv[:, 1].flatten(0, 1)
            q = a["q"][b].float().view(p["Hk"], g, p["D"])
            s = torch.einsum("hgd,nhd->hgn", q, k) * a["sm_scale"]
            o = torch.einsum("hgn,nhd->hgd", torch.softmax(s, -1), v).reshape(p["Hq"], p["D"])
            yield "out", (lambda x, b=b: x[b]), o

    def flops(self, p):
        return 4 * p["B"] * (p["S"] + p["U"]) * p["Hq"] * p["D"]

    def nbytes(self, p):    # the shared prefix counted once
        return 4 * (p["S"] + p["B"] * p["U"]) * p["Hk"] * p["D"] + 4 * p["B"] * p["Hq"] * p["D"]


@register
class Pod(Op):
    name = "pod"
    args = ("q_p[S,Hq,D] bf16, k_p[S,Hk,D] bf16, v_p[S,Hk,D] bf16 (one causal prefill request), q_d[B,Hq,D] bf16, "
            "k_pages/v_pages[P,page,Hk,D] bf16, kv_indptr, kv_indices, kv_last_page_len i32, page_size int, "
            "sm_scale float, out_p[S,Hq,D] bf16, out_d[B,Hq,D] bf16 (prefill and decode in one operator)")

    def meta(self, c, p):
        indptr, idx, last, self._np = page_table(c, [p["kv"]] * p["B"], p["page"])
        return dict(kv_indptr=indptr, kv_indices=idx, kv_last_page_len=last, page_size=p["page"],
                    sm_scale=p["D"] ** -0.5)

    def data(self, c, p):
        sh = (self._np, p["page"], p["Hk"], p["D"])
        return dict(q_p=c.randn(p["S"], p["Hq"], p["D"]), k_p=c.randn(p["S"], p["Hk"], p["D"]),
                    v_p=c.randn(p["S"], p["Hk"], p["D"]), q_d=c.randn(p["B"], p["Hq"], p["D"]),
                    k_pages=c.randn(*sh), v_pages=c.randn(*sh))

    def outs(self, p):
        return dict(out_p=((p["S"], p["Hq"], p["D"]), BF16), out_d=((p["B"], p["Hq"], p["D"]), BF16))

    def ref(self, a, p):
        g = p["Hq"] // p["Hk"]
        rows = rows_subset(p["S"], 384)
        for h in (0, p["Hq"] - 1):
            o = sdpa_rows(a["q_p"][rows, h].float(), a["k_p"][:, h // g].float(), a["v_p"][:, h // g].float(),
                          a["sm_scale"], rows)
            yield "out_p", (lambda x, h=h: x[rows, h]), o
        for b in sorted({0, p["B"] - 1}):
            i = a["kv_indices"][a["kv_indptr"][b]:a["kv_indptr"][b + 1]].long()
            k = a["k_pages"][i].flatten(0, 1)[: p["kv"]].float()
            v = a["v_pages"][i].flatten(0, 1)[: p["kv"]].float()
            q = a["q_d"][b].float().view(p["Hk"], g, p["D"])
            s = torch.einsum("hgd,nhd->hgn", q, k) * a["sm_scale"]
            o = torch.einsum("hgn,nhd->hgd", torch.softmax(s, -1), v).reshape(p["Hq"], p["D"])
            yield "out_d", (lambda x, b=b: x[b]), o

    def flops(self, p):
        return 2 * p["S"] * p["S"] * p["Hq"] * p["D"] + 4 * p["B"] * p["kv"] * p["Hq"] * p["D"]

    def nbytes(self, p):
        return (4 * p["B"] * p["kv"] * p["Hk"] * p["D"] + 4 * p["B"] * p["Hq"] * p["D"]
                + 4 * p["S"] * p["D"] * (p["Hq"] + p["Hk"]))


@register
class BlockSparse(Op):
    name = "block_sparse"
    args = ("q[S,Hq,D] bf16, k[S,Hk,D] bf16, v[S,Hk,D] bf16, bsr_indptr[S/R+1] i32, bsr_indices[nnz] i32, "
            "R int (rows per block), C int (columns per block), sm_scale float, out[S,Hq,D] bf16 (same mask for all heads)")

    def meta(self, c, p):
        nb = p["S"] // p["R"]
        keep = max(1, int(nb * p["density"]))
        idx = [torch.sort(c.perm(p["S"] // p["C"])[:keep])[0] for _ in range(nb)]
        self._nnz = keep * nb
        return dict(bsr_indptr=(torch.arange(nb + 1, device=DEV) * keep).to(I32),
                    bsr_indices=torch.cat(idx).to(I32), R=p["R"], C=p["C"], sm_scale=p["D"] ** -0.5)

    def data(self, c, p):
        return dict(q=c.randn(p["S"], p["Hq"], p["D"]), k=c.randn(p["S"], p["Hk"], p["D"]),
                    v=c.randn(p["S"], p["Hk"], p["D"]))

    def outs(self, p):
        return dict(out=((p["S"], p["Hq"], p["D"]), BF16))

    def ref(self, a, p):
        nb, g = p["S"] // p["R"], p["Hq"] // p["Hk"]
        for rb in (0, nb // 2, nb - 1):
            ids = a["bsr_indices"][a["bsr_indptr"][rb]:a["bsr_indptr"][rb + 1]].long()
            cols = (ids[:, None] * p["C"] + torch.arange(p["C"], device=DEV)).flatten()
            sl = slice(rb * p["R"], (rb + 1) * p["R"])
            for h in (0, p["Hq"] - 1):
                o = sdpa_rows(a["q"][sl, h].float(), a["k"][cols, h // g].float(), a["v"][cols, h // g].float(),
                              a["sm_scale"])
                yield "out", (lambda x, sl=sl, h=h: x[sl, h]), o

    def flops(self, p):
        return 4 * self._nnz * p["R"] * p["C"] * p["Hq"] * p["D"]

    def nbytes(self, p):
        return 4 * p["S"] * p["D"] * (p["Hq"] + p["Hk"])


# ----------------------------------------------------------------- sampling
class Sampling(Op):

    def meta(self, c, p):
        return dict(seed=1234, offset=0, **self.knobs)

    def data(self, c, p):
        if p.get("stat"):   # one distribution for all rows: compare frequencies
            row = torch.softmax(c.randn(1, p["V"], dtype=F32, std=p.get("std", 4.0)), -1)
            return dict(probs=row.expand(p["B"], -1).contiguous())
        return dict(probs=torch.softmax(c.randn(p["B"], p["V"], dtype=F32, std=p.get("std", 4.0)), -1))

    def outs(self, p):
        return dict(out=((p["B"],), I32))

    def masked(self, probs):
        """Truncated, renormalized distribution (the contract)."""
        raise NotImplementedError

    def check(self, a, res, p):
        x = res["out"].long()
        if (x < 0).any() or (x >= p["V"]).any():
            return {"rel_err": 1.0, "ok": False}
        bad, n = 0.0, 0
        for i in range(0, p["B"], 128):
            pr, xs = a["probs"][i:i + 128], x[i:i + 128]
            if p.get("stat") and i:
                break
            bad += (self.slack(pr, xs)).float().sum().item()
            n += len(xs)
        r = {"rel_err": bad / n, "ok": bad == 0}
        if p.get("stat"):
            q = self.masked(a["probs"][:1])[0].double()
            e = q * p["B"]
            o = torch.bincount(x, minlength=p["V"]).double()
            outside = o[q == 0].sum().item()
            m = e >= 5
            e2 = torch.cat([e[m], e[~m].sum().view(1)])
            o2 = torch.cat([o[m], o[~m].sum().view(1)])
            keep = e2 > 0
            chi = ((o2 - e2) ** 2 / e2.clamp_min(1e-9))[keep].sum().item()
            df = max(1, int(keep.sum().item()) - 1)
            r["chi2_z"] = (chi - df) / math.sqrt(2 * df)
            r["outside"] = outside
            r["ok"] = bool(r["chi2_z"] < 6 and outside <= 2)
        return r

    def flops(self, p):
        return 0

    def nbytes(self, p):
        return 4 * p["B"] * p["V"] + 4 * p["B"]


def _topp_slack(pr, xs, top_p):
    v = pr.gather(1, xs[:, None])
    above = torch.where(pr > v, pr, torch.zeros_like(pr)).sum(1)
    return above > top_p * pr.sum(1) + 1e-3


def _topp_mask(pr, top_p):
    s, i = pr.sort(-1, descending=True)
    excl = s.cumsum(-1) - s
    s = torch.where(excl < top_p, s, torch.zeros_like(s))
    out = torch.zeros_like(pr).scatter_(1, i, s)
    return out / out.sum(-1, keepdim=True)


def _topk_mask(pr, k):
    t = pr.topk(k, -1).values[:, -1:]
    out = torch.where(pr >= t, pr, torch.zeros_like(pr))
    return out / out.sum(-1, keepdim=True)


@register
class TopP(Sampling):
    name = "top_p_sample"
    args = "probs[B,V] f32 (rows sum to 1), top_p float, seed int, offset int, out[B] i32"
    knobs = dict(top_p=0.9)

    def slack(self, pr, xs):
        return _topp_slack(pr, xs, 0.9)

    def masked(self, pr):
        return _topp_mask(pr, 0.9)


@register
class TopK(Sampling):
    name = "top_k_sample"
    args = "probs[B,V] f32, top_k int, seed int, offset int, out[B] i32"
    knobs = dict(top_k=50)

    def slack(self, pr, xs):
        v = pr.gather(1, xs[:, None])
        return (pr > v).sum(1) >= 50

    def masked(self, pr):
        return _topk_mask(pr, 50)


@register
class TopKTopP(Sampling):
    name = "top_k_top_p_sample"
    args = "probs[B,V] f32, top_k int, top_p float, seed int, offset int, out[B] i32 (top-k first, renormalize, then top-p)"
    knobs = dict(top_k=50, top_p=0.9)

    def slack(self, pr, xs):
        q = _topk_mask(pr, 50)
        return _topp_slack(q, xs, 0.9) | (q.gather(1, xs[:, None])[:, 0] == 0)

    def masked(self, pr):
        return _topp_mask(_topk_mask(pr, 50), 0.9)


@register
class MinP(Sampling):
    name = "min_p_sample"
    args = "probs[B,V] f32, min_p float, seed int, offset int, out[B] i32 (keep probs >= min_p * max)"
    knobs = dict(min_p=0.05)

    def slack(self, pr, xs):
        return pr.gather(1, xs[:, None])[:, 0] < 0.05 * pr.amax(1) * (1 - 1e-5)

    def masked(self, pr):
        out = torch.where(pr >= 0.05 * pr.amax(1, keepdim=True), pr, torch.zeros_like(pr))
        return out / out.sum(-1, keepdim=True)


@register
class TopKValues(Op):
    name = "top_k"
    args = "x[B,V] f32 or bf16, k int, sorted bool, values[B,k], ids[B,k] i32 or i64 (the k largest of each row; order free unless sorted)"

    def meta(self, c, p):
        return dict(k=p["k"], sorted=p.get("sorted", False))

    def data(self, c, p):
        return dict(x=c.randn(p["B"], p["V"], dtype=F32 if p["dtype"] == "f32" else BF16))

    def outs(self, p):
        return dict(values=((p["B"], p["k"]), F32 if p["dtype"] == "f32" else BF16), ids=((p["B"], p["k"]), I32))

    def check(self, a, res, p):
        values, ids = res["values"], res["ids"].long()
        if (ids < 0).any() or (ids >= p["V"]).any():
            return {"rel_err": 1.0, "ok": False}
        best = a["x"].topk(p["k"], -1).values
        distinct = (ids.sort(1).values.diff(dim=1) > 0).all()
        same = (values == a["x"].gather(1, ids)).all() and (values.sort(1, descending=True).values == best).all()
        if p.get("sorted"):
            same = same and (values == best).all()
        ok = bool(distinct and same)
        return {"rel_err": 0.0 if ok else 1.0, "ok": ok}

    def nbytes(self, p):
        size = 4 if p["dtype"] == "f32" else 2
        return size * p["B"] * p["V"] + (4 + size) * p["B"] * p["k"]


# ---------------------------------------------------------------------- MoE
@register
class MoeBf16(Op):
    name = "moe_bf16"
    args = ("x[T,H] bf16, w13[E,2I,H] bf16 (rows 0..I gate, I..2I up), w2[E,H,I] bf16, topk_ids[T,k] i32, "
            "topk_weights[T,k] f32, out[T,H] bf16: sum_j w_j * w2[e_j] @ (silu(gate)*up)")

    sets = 8

    def meta(self, c, p):       # weights are shared: they are far larger than L2
        return self.weights(c, p)

    _cache = {}

    def weights(self, c, p):
        key = (p["E"], p["H"], p["I"])
        if key not in MoeBf16._cache:
            MoeBf16._cache.clear()
            torch.cuda.empty_cache()
            MoeBf16._cache[key] = dict(w13=c.randn(p["E"], 2 * p["I"], p["H"], std=p["H"] ** -0.5),
                                       w2=c.randn(p["E"], p["H"], p["I"], std=p["I"] ** -0.5))
        return MoeBf16._cache[key]

    def data(self, c, p):
        ids = c.rand(p["T"], p["E"]).topk(p["k"], -1).indices
        self._act = int(torch.unique(ids).numel())
        w = torch.softmax(c.randn(p["T"], p["k"], dtype=F32), -1)
        return dict(x=c.randn(p["T"], p["H"]), topk_ids=ids.to(I32).contiguous(), topk_weights=w)

    def outs(self, p):
        return dict(out=((p["T"], p["H"]), BF16))

    def ref(self, a, p):
        r = rows_subset(p["T"], 64 + 8)
        r = r[torch.linspace(0, len(r) - 1, min(16, len(r)), device=DEV).long()]
        outs = []
        for t in r.tolist():
            acc = torch.zeros(p["H"], device=DEV)
            for j in range(p["k"]):
                e = int(a["topk_ids"][t, j])
                h = a["w13"][e].float() @ a["x"][t].float()
                h = torch.nn.functional.silu(h[: p["I"]]) * h[p["I"]:]
                acc += a["topk_weights"][t, j] * (a["w2"][e].float() @ h)
            outs.append(acc)
        yield "out", (lambda x: x[r]), torch.stack(outs)

    def flops(self, p):
        return 6 * p["T"] * p["k"] * p["H"] * p["I"]

    def nbytes(self, p):
        return 6 * self._act * p["H"] * p["I"] + 4 * p["T"] * p["H"]


@register
class MoeRouteSoftmax(Op):
    name = "moe_route_softmax"
    args = ("logits[T,E] f32, k int, out_weights[T,k] f32, out_ids[T,k] i32 "
            "(softmax over E, top-k, weights renormalized to sum 1, ids in descending weight order)")

    def meta(self, c, p):
        return dict(k=p["k"])

    def data(self, c, p):
        return dict(logits=c.randn(p["T"], p["E"], dtype=F32))

    def outs(self, p):
        return dict(out_weights=((p["T"], p["k"]), F32), out_ids=((p["T"], p["k"]), I32))

    def ref(self, a, p):
        w, i = torch.softmax(a["logits"].double(), -1).topk(p["k"], -1)
        yield "out_weights", None, w / w.sum(-1, keepdim=True)
        yield "out_ids", None, i

    def nbytes(self, p):
        return 4 * p["T"] * p["E"] + 8 * p["T"] * p["k"]


@register
class MoeRouteDsv3(Op):
    name = "moe_route_dsv3"
    args = ("logits[T,E] f32, bias[E] f32, n_group int, topk_group int, k int, scale float, "
            "out_weights[T,k] f32, out_ids[T,k] i32 (DeepSeek-V3: sigmoid, +bias for selection, groups ranked by "
            "the sum of their top-2, top-k in kept groups, weights = sigmoid renormalized * scale; order free)")
    tol = 1e-2

    def meta(self, c, p):
        return dict(bias=c.randn(p["E"], dtype=F32, std=0.1), n_group=8, topk_group=4, k=p["k"], scale=2.5)

    def data(self, c, p):
        return dict(logits=c.randn(p["T"], p["E"], dtype=F32))

    def outs(self, p):
        return dict(out_weights=((p["T"], p["k"]), F32), out_ids=((p["T"], p["k"]), I32))

    @staticmethod
    def route(logits, bias, n_group, topk_group, k, scale):
        s = torch.sigmoid(logits)
        b = s + bias
        g = b.view(len(s), n_group, -1).topk(2, -1).values.sum(-1)
        gi = g.topk(topk_group, -1).indices
        keep = torch.zeros_like(g).scatter_(1, gi, 1.0).bool()
        m = keep.unsqueeze(-1).expand(-1, -1, b.shape[1] // n_group).reshape(b.shape)
        ids = b.masked_fill(~m, -math.inf).topk(k, -1).indices
        w = s.gather(1, ids)
        return w / (w.sum(-1, keepdim=True) + 1e-20) * scale, ids

    def check(self, a, res, p):
        w, i = self.route(a["logits"].double(), a["bias"].double(), 8, 4, p["k"], 2.5)
        dense = torch.zeros(p["T"], p["E"], device=DEV, dtype=torch.double)
        r = dense.scatter(1, i, w)
        x = dense.scatter(1, res["out_ids"].long().clamp(0, p["E"] - 1), res["out_weights"].double())
        e = ((x - r).norm() / r.norm()).item()
        return {"rel_err": e, "ok": e == e and e < self.tol}

    def nbytes(self, p):
        return 4 * p["T"] * p["E"] + 8 * p["T"] * p["k"]


# ----------------------------------------------------- norm, activation, rope
@register
class RmsNorm(Op):
    name = "rmsnorm"
    args = "x[T,H] bf16, weight[H] bf16, eps float, out[T,H] bf16"

    def meta(self, c, p):
        return dict(weight=(1 + c.randn(p["H"], std=0.1)).to(BF16), eps=1e-6)

    def data(self, c, p):
        return dict(x=c.randn(p["T"], p["H"]))

    def outs(self, p):
        return dict(out=((p["T"], p["H"]), BF16))

    def ref(self, a, p):
        x = a["x"].float()
        yield "out", None, x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * a["weight"].float()

    def nbytes(self, p):
        return 4 * p["T"] * p["H"] + 2 * p["H"]


@register
class FusedAddRmsNorm(Op):
    name = "fused_add_rmsnorm"
    args = ("x[T,H] bf16 (in/out), residual[T,H] bf16 (in/out), weight[H] bf16, eps float: "
            "residual += x; x = rmsnorm(residual) * weight")
    inplace = ("x", "residual")

    def meta(self, c, p):
        return dict(weight=(1 + c.randn(p["H"], std=0.1)).to(BF16), eps=1e-6)

    def data(self, c, p):
        return dict(x=c.randn(p["T"], p["H"]), residual=c.randn(p["T"], p["H"]))

    def ref(self, a, p):
        s = a["x"].float() + a["residual"].float()
        yield "residual", None, s
        yield "x", None, s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-6) * a["weight"].float()

    def nbytes(self, p):
        return 8 * p["T"] * p["H"] + 2 * p["H"]


@register
class Softmax(Op):
    name = "softmax"
    args = "x[T,H] bf16, out[T,H] bf16: softmax of each row"

    def data(self, c, p):
        return dict(x=c.randn(p["T"], p["H"], std=3.0))

    def outs(self, p):
        return dict(out=((p["T"], p["H"]), BF16))

    def ref(self, a, p):
        yield "out", None, torch.softmax(a["x"].float(), -1)

    def nbytes(self, p):
        return 4 * p["T"] * p["H"]


@register
class LayerNorm(Op):
    name = "layernorm"
    args = "x[T,H] bf16, gamma[H] f32, beta[H] f32, eps float, out[T,H] bf16"

    def meta(self, c, p):
        return dict(gamma=1 + c.randn(p["H"], dtype=F32, std=0.1), beta=c.randn(p["H"], dtype=F32, std=0.1), eps=1e-6)

    def data(self, c, p):
        return dict(x=c.randn(p["T"], p["H"]))

    def outs(self, p):
        return dict(out=((p["T"], p["H"]), BF16))

    def ref(self, a, p):
        yield "out", None, torch.nn.functional.layer_norm(a["x"].float(), (p["H"],), a["gamma"], a["beta"], 1e-6)

    def nbytes(self, p):
        return 4 * p["T"] * p["H"] + 8 * p["H"]


class GatedAct(Op):

    def data(self, c, p):
        return dict(x=c.randn(p["T"], 2 * p["H"]))

    def outs(self, p):
        return dict(out=((p["T"], p["H"]), BF16))

    def ref(self, a, p):
        g, u = a["x"].float().chunk(2, -1)
        yield "out", None, self.act(g) * u

    def nbytes(self, p):
        return 6 * p["T"] * p["H"]


@register
class SiluMul(GatedAct):
    name = "silu_and_mul"
    args = "x[T,2H] bf16, out[T,H] bf16: silu(x[:, :H]) * x[:, H:]"

    def act(self, g):
        return torch.nn.functional.silu(g)


@register
class GeluMul(GatedAct):
    name = "gelu_tanh_and_mul"
    args = "x[T,2H] bf16, out[T,H] bf16: gelu_tanh(x[:, :H]) * x[:, H:]"

    def act(self, g):
        return torch.nn.functional.gelu(g, approximate="tanh")


def rope_ref(x, pos, cs):
    """x [T,h,D]; half-split (NeoX) rotation."""
    d = x.shape[-1] // 2
    c, s = cs[pos.long(), :d].unsqueeze(1), cs[pos.long(), d:].unsqueeze(1)
    x = x.float()
    x1, x2 = x[..., :d], x[..., d:]
    return torch.cat([x1 * c - x2 * s, x2 * c + x1 * s], -1)


def cos_sin(n, d, theta=5e5):
    inv = theta ** (-torch.arange(0, d, 2, device=DEV, dtype=torch.double) / d)
    f = torch.arange(n, device=DEV, dtype=torch.double)[:, None] * inv
    return torch.cat([f.cos(), f.sin()], -1).float().contiguous()


@register
class RopeInplace(Op):
    name = "rope_inplace"
    args = ("q[T,Hq,D] bf16 (in/out), k[T,Hk,D] bf16 (in/out), positions[T] i64, cos_sin_cache[max_pos,D] f32 "
            "(first D/2 cos, last D/2 sin), half-split rotation")
    inplace = ("q", "k")

    def meta(self, c, p):
        return dict(positions=torch.randint(0, 8192, (p["T"],), device=DEV, generator=c.g),
                    cos_sin_cache=cos_sin(8192, p["D"]))

    def data(self, c, p):
        return dict(q=c.randn(p["T"], p["Hq"], p["D"]), k=c.randn(p["T"], p["Hk"], p["D"]))

    def ref(self, a, p):
        yield "q", None, rope_ref(a["q"], a["positions"], a["cos_sin_cache"])
        yield "k", None, rope_ref(a["k"], a["positions"], a["cos_sin_cache"])

    def nbytes(self, p):
        return 4 * p["T"] * (p["Hq"] + p["Hk"]) * p["D"]


@register
class RopeAppend(Op):
    name = "rope_append"
    args = ("q[T,Hq,D] bf16 (in/out), k[T,Hk,D] bf16 (may be clobbered), v[T,Hk,D] bf16, positions[T] i64, "
            "cos_sin_cache[max_pos,D] f32, batch_idx[T] i32, pos_in_req[T] i32, kv_indptr[B+1] i32, kv_indices i32, "
            "kv_last_page_len[B] i32, page_size int, k_pages/v_pages[P,page,Hk,D] bf16 (in/out): rotate q and k, "
            "store k and v to the paged cache")
    inplace = ("q", "k", "k_pages", "v_pages")

    def meta(self, c, p):
        B, L = p["B"], p["T"] // p["B"]
        indptr, idx, last, self._np = page_table(c, [L] * B, p["page"])
        pos = torch.arange(L, device=DEV).repeat(B)
        return dict(positions=pos, cos_sin_cache=cos_sin(max(L, 16), p["D"]),
                    batch_idx=torch.arange(B, device=DEV, dtype=I32).repeat_interleave(L),
                    pos_in_req=pos.to(I32), kv_indptr=indptr, kv_indices=idx, kv_last_page_len=last,
                    page_size=p["page"])

    def data(self, c, p):
        sh = (self._np, p["page"], p["Hk"], p["D"])
        return dict(q=c.randn(p["T"], p["Hq"], p["D"]), k=c.randn(p["T"], p["Hk"], p["D"]),
                    v=c.randn(p["T"], p["Hk"], p["D"]),
                    k_pages=torch.zeros(sh, dtype=BF16, device=DEV), v_pages=torch.zeros(sh, dtype=BF16, device=DEV))

    def ref(self, a, p):
        page = a["kv_indices"][(a["kv_indptr"][a["batch_idx"].long()] + a["pos_in_req"] // p["page"]).long()].long()
        slot = (a["pos_in_req"] % p["page"]).long()
        yield "q", None, rope_ref(a["q"], a["positions"], a["cos_sin_cache"])
        yield "k_pages", (lambda x: x[page, slot]), rope_ref(a["k"], a["positions"], a["cos_sin_cache"])
        yield "v_pages", (lambda x: x[page, slot]), a["v"]

    def nbytes(self, p):
        return p["T"] * p["D"] * (4 * p["Hq"] + 8 * p["Hk"])


# ------------------------------------------------------------------- suites
LLM_NK = [(4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336)]
LLM_M = [1, 16, 64, 256, 2048, 8192]
MNK = lambda m, n, k: dict(M=m, N=n, K=k)
GEMM = [MNK(s, s, s) for s in (1024, 2048, 4096, 8192)] + [MNK(m, n, k) for n, k in LLM_NK for m in LLM_M]
suite("gemm_bf16", "gemm_bf16", GEMM)
suite("gemm_squares", "gemm_bf16", [MNK(s, s, s) for s in range(1024, 8193, 512)])
FP8_SHAPES = [MNK(s, s, s) for s in (2048, 4096, 8192)] + \
    [MNK(m, n, k) for n, k in ((4096, 4096), (28672, 4096), (4096, 14336)) for m in (1, 16, 64, 256, 2048, 8192)]
for _o in ("gemm_fp8_tensor", "gemm_fp8_row", "gemm_fp8_block"):
    suite("gemm_fp8", _o, FP8_SHAPES)
suite("grouped_gemm", "grouped_gemm_bf16",
      [dict(E=8, M=8 * 128, N=28672, K=4096), dict(E=8, M=8 * 2048, N=28672, K=4096),
       dict(E=128, M=128 * 128, N=1536, K=2048), dict(E=128, M=128 * 512, N=1536, K=2048)])


def _pf(D, Hk, S, causal, **kw):
    return dict(B=max(1, 16384 // S), S=S, Hq=32, Hk=Hk, D=D, causal=causal, **kw)


SEQS = (512, 1024, 2048, 4096, 8192, 16384)
suite("attn_prefill", "attn_prefill", [_pf(128, 8, s, c) for c in (1, 0) for s in SEQS])
suite("attn_prefill", "attn_prefill", [_pf(d, 8, s, c) for d in (64, 256) for c in (1, 0) for s in (512, 2048, 8192, 16384)])
suite("attn_prefill", "attn_prefill", [_pf(128, 32, s, c) for c in (1, 0) for s in (2048, 8192)])
suite("attn_prefill_paged", "attn_prefill_paged", [_pf(128, 8, s, 1, page=16) for s in (512, 2048, 8192)]
      + [_pf(128, 8, 2048, 0, page=16), _pf(128, 8, 2048, 1, page=1), _pf(128, 8, 2048, 1, page=64)])


def _dec(B, kv, Hq=32, page=16, **kw):
    return dict(B=B, kv=kv, Hq=Hq, Hk=8, D=128, page=page, **kw)


suite("attn_decode", "attn_decode", [_dec(b, kv) for kv in (512, 2048, 8192, 32768) for b in (1, 8, 32, 128, 256)])
suite("attn_decode", "attn_decode", [_dec(b, kv, Hq=64) for b, kv in ((1, 2048), (1, 32768), (8, 8192), (32, 2048), (32, 8192), (128, 2048), (128, 8192), (256, 512))])
suite("attn_decode", "attn_decode", [_dec(b, kv, page=pg) for pg in (1, 64) for b, kv in ((1, 8192), (32, 2048), (128, 8192))])
suite("attn_decode", "attn_decode", [_dec(64, 8192, varlen=1), _dec(256, 4096, varlen=1)])
suite("mla_decode", "mla_decode", [dict(B=b, kv=kv, H=128, page=64) for kv in (1024, 4096, 16384) for b in (1, 8, 32, 64, 128)])
suite("cascade", "cascade_decode", [dict(B=64, S=8192, U=512, Hq=32, Hk=8, D=128, page=16), dict(B=256, S=4096, U=256, Hq=32, Hk=8, D=128, page=16)])
suite("pod", "pod", [dict(S=4096, B=64, kv=4096, Hq=32, Hk=8, D=128, page=16), dict(S=8192, B=128, kv=2048, Hq=32, Hk=8, D=128, page=16)])
suite("block_sparse", "block_sparse", [dict(S=8192, R=128, C=128, density=0.25, Hq=32, Hk=8, D=128), dict(S=16384, R=64, C=64, density=0.125, Hq=32, Hk=8, D=128)])
for _o in ("top_p_sample", "top_k_sample", "top_k_top_p_sample", "min_p_sample"):
    suite("sampling", _o, [dict(B=b, V=v) for v in (32000, 128256, 151936) for b in (1, 32, 256, 512)])
    suite("sampling", _o, [dict(B=8192, V=4096, std=2.0, stat=1)])
suite("sampling", "top_p_sample", [dict(B=b, V=128256, std=1.0) for b in (1, 32, 256)])
MOE = {"mixtral": dict(E=8, k=2, H=4096, I=14336), "qwen3-30b": dict(E=128, k=8, H=2048, I=768), "dsv3": dict(E=256, k=8, H=7168, I=2048)}
for _m in MOE.values():
    suite("moe", "moe_bf16", [dict(T=t, **_m) for t in (1, 64, 1024, 8192)])
suite("moe_route", "moe_route_softmax", [dict(T=t, E=e, k=k) for e, k in ((8, 2), (128, 8)) for t in (1, 64, 1024, 8192)])
suite("top_k", "top_k", [dict(B=b, V=131072, k=k, dtype=t) for t in ("f32", "bf16") for b in (1, 32, 256) for k in (256, 2048)])
suite("top_k", "top_k", [dict(B=b, V=131072, k=256, dtype="f32", sorted=True) for b in (1, 32, 256)])
suite("moe_route", "moe_route_dsv3", [dict(T=t, E=256, k=8) for t in (1, 64, 1024, 8192)])
TOK = (1, 64, 1024, 16384)
for _o in ("rmsnorm", "fused_add_rmsnorm", "silu_and_mul"):
    suite("norm", _o, [dict(T=t, H=h) for h in (2048, 4096, 8192, 16384) for t in TOK])
for _o in ("layernorm", "softmax", "gelu_tanh_and_mul"):
    suite("norm", _o, [dict(T=t, H=h) for h in (4096, 8192) for t in TOK])
suite("rope", "rope_inplace", [dict(T=t, Hq=hq, Hk=8, D=128) for hq in (32, 64) for t in TOK])
suite("rope", "rope_append", [dict(T=b * l, B=b, Hq=32, Hk=8, D=128, page=16) for b, l in ((1, 1), (64, 1), (1, 1024), (8, 2048))])
