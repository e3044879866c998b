"""
What becomes of one sample's output
===================================

Entropy alone, similar labels and the default method each leave another trace on a forgotten sample.
"""

# %%
# Entropy alone is OEU without projection and without the retained samples, at a learning rate at
# which it forgets at all. Similar labels are Q-MUL, at its defaults. The default method is
# ``calibrated``.
import matplotlib.pyplot as plt
import numpy as np
from memorised import confidence, noisy_digits, original, probabilities, request, retrained

import qunlearn as qu

split = request()
networks = {
    "before": original(),
    "entropy alone": qu.forget(
        original(), split, "oeu", alpha=0.0, beta=0.0, lr=0.5, epochs=10
    ).model,
    "similar labels": qu.forget(original(), split, "qmul").model,
    "calibrated": qu.forget(original(), split).model,
    "Retrain": retrained(),
}

# %%
# The sample is the forgotten one of which Retrain is half certain: memorised, and truly hard.
hard = split.forget[np.abs(confidence(retrained(), split.forget) - 0.5).argmin()][None]
label = int(noisy_digits().labels[hard])
figure, axes = plt.subplots(1, 6, figsize=(10, 2.4), layout="constrained")
axes[0].imshow(noisy_digits().images[hard][0, 0], cmap="gray")
axes[0].set_title(f"a forgotten {label}")
axes[0].axis("off")
for panel, (name, network) in zip(axes[1:], networks.items(), strict=True):
    colours = ["#b0561f" if digit == label else "#8fa6b8" for digit in range(10)]
    panel.bar(range(10), probabilities(network, hard)[0], color=colours)
    panel.set(title=name, ylim=(0, 1), xticks=range(0, 10, 3))
    panel.set(xlabel="digit", ylabel="probability" if name == "before" else "")
    panel.tick_params(labelleft=name == "before")
plt.show()

# %%
# Entropy alone makes every output nearly uniform, on samples that nobody asked to forget as well:
# the network is lost. Similar labels left this network as it was. The mean entropy in nats, on
# forgotten and on retained samples; complete ignorance is 2.30.
for name, network in networks.items():
    entropy = {}
    for part, rows in (("forgotten", split.forget), ("retained", split.retain)):
        p = probabilities(network, rows).clamp_min(1e-12)
        entropy[part] = float(-(p * p.log()).sum(1).mean())
    print(f"{name:16} forgotten {entropy['forgotten']:.2f}   retained {entropy['retained']:.2f}")
