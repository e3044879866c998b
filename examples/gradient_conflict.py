"""
Gradient conflict, layer by layer
=================================

Forgetting and retaining pull a network in different directions: where, and how much?
"""

# %%
# ``GradientProjector`` works in any training loop. It takes one gradient of each kind and removes
# from the forget gradient what acts along the retain gradient, layer by layer.
import copy

import matplotlib.pyplot as plt
import torch
from memorised import noisy_digits, original, request

import qunlearn as qu

data, split = noisy_digits(), request()
model = copy.deepcopy(original()).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
projector = qu.GradientProjector(model, alpha=1.0, granularity="layer")
retain = qu.Loader(data, split.retain, 64)
forget = qu.Loader(data, split.forget, 64)

cosines = []
for step in range(40):
    kept, gone = retain.batch(*divmod(step, len(retain))), forget.batch(*divmod(step, len(forget)))
    optimizer.zero_grad()
    with projector.forget():
        qu.negative_entropy(model(gone.images)).backward()
    with projector.retain():
        torch.nn.functional.cross_entropy(model(kept.images), kept.labels).backward()
    found = projector.project_and_measure()
    cosines.append(found.cosine)
    optimizer.step()

# %%
# A negative cosine is a conflict: a step that forgets would undo what is retained. The projection
# makes every cosine zero.
kinds = {name: type(module).__name__ for name, module in model.named_modules()}
layers = [f"{name}: {kinds[name]}" for name in found.names]
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
shown = axes.imshow(torch.stack(cosines, 1), cmap="PuOr", vmin=-1, vmax=1, aspect="auto")
axes.set_yticks(range(len(layers)), layers)
axes.set_xlabel("step")
figure.colorbar(shown, label="cosine of the two gradients")
plt.show()

# %%
# The share of steps in which each layer was in conflict:
for name, share in zip(layers, (torch.stack(cosines) < 0).float().mean(0), strict=True):
    print(f"{name:16} {100 * share:3.0f} %")
