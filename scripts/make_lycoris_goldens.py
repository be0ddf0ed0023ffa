"""Write LoHa and LoKr runs of PEFT, and files of LyCORIS, on the small transformer of testdata/dit/zimage, to testdata/dit/lycoris.

NAME.safetensors          ten steps of PEFT in float64 (as in dit_goldens_float64.py) on all linear layers, from factors that are
                          sines: losses, gradients of the first step (grad.KEY), and the factors at the end
NAME-lycoris.safetensors  a file of the LyCORIS library (names lycoris_…); NAME-lycoris-loss.safetensors has the loss of
                          the transformer with it

    PYTHONPATH=scripts python scripts/make_lycoris_goldens.py
"""
import lycoris
import safetensors.torch
import torch
from diffusers import ZImageTransformer2DModel
from dit_goldens_float64 import golden_in_float64, in_float64
from dit_goldens_more import folder, zimage_loss
from peft import LoHaConfig, LoKrConfig, inject_adapter_in_model

out = folder / "lycoris"
out.mkdir(exist_ok=True)
CASES = {
    "loha": (LoHaConfig, {"r": 2, "alpha": 4}, {"algo": "loha"}),
    "lokr": (LoKrConfig, {"r": 2, "alpha": 4, "decompose_factor": 4}, {"algo": "lokr", "factor": 4}),
}


def opened():
    model = ZImageTransformer2DModel.from_pretrained(folder / "zimage/transformer")
    return model, safetensors.torch.load_file(folder / "zimage/golden.safetensors")


def sines(parameters, size=0.4):
    for p in parameters:
        p.data = (size * torch.sin(torch.arange(p.numel(), dtype=torch.float64).view(p.shape))).float()


for name, (kind, settings, library) in CASES.items():
    model, _ = opened()
    names = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    model = inject_adapter_in_model(kind(target_modules=names, **settings), model)
    factors = {n: p for n, p in model.named_parameters() if "hada_" in n or "lokr_" in n}
    sines(factors.values(), 0.2)
    in_float64(model)
    g = golden_in_float64("zimage")
    optimizer, losses, grads = torch.optim.AdamW(factors.values(), lr=1e-3, weight_decay=0.1), [], {}
    for step in range(10):
        losses.append(zimage_loss(model, g))
        losses[-1].backward()
        if step == 0:
            grads = {"grad." + n.removesuffix(".default"): p.grad.clone() for n, p in factors.items() if p.grad is not None}
        optimizer.step()
        optimizer.zero_grad()
    tensors = {"losses": torch.stack(losses), **grads, **{n.removesuffix(".default"): p for n, p in factors.items()}}
    safetensors.torch.save_file({n: p.detach().float().contiguous() for n, p in tensors.items()}, out / f"{name}.safetensors")

    model, g = opened()
    lycoris.LycorisNetwork.apply_preset({"target_module": [], "target_name": [".*to_q", ".*to_out.0", ".*w1"], "use_fnmatch": False})
    network = lycoris.create_lycoris(model, 1.0, linear_dim=2, linear_alpha=3, **library)
    network.apply_to()
    sines(p for p in network.parameters())
    file = out / f"{name}-lycoris.safetensors"
    safetensors.torch.save_file({n: p.detach().contiguous() for n, p in network.state_dict().items()}, file)
    loss = zimage_loss(model, g)
    safetensors.torch.save_file({"loss": loss.detach()}, out / f"{name}-lycoris-loss.safetensors")
    print(name, losses[0].item(), losses[-1].item(), loss.item(), len(network.state_dict()))
