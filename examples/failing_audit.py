"""
An audit that fails, and why
============================

A network can look as if it had forgotten, and give the samples back as soon as somebody trains on.
"""

# %%
# The audit: fine-tune each network on *retained* samples only, and look at the forgotten ones. What
# they gain beyond Retrain, which never saw them, was still in the weights.
import copy

import matplotlib.pyplot as plt
from memorised import AFTER, BEFORE, RETRAIN, original, request, retrained

import qunlearn as qu

split = request()
networks = {
    "Retrain": retrained(),
    "random labels": qu.forget(original(), split, "rl").model,
    "calibrated": qu.forget(original(), split).model,
}
found = {}
for name, network in networks.items():
    tuned = qu.train(copy.deepcopy(network), split, part="retain", epochs=5, batch_size=64, lr=0.05)
    found[name] = qu.evaluate(network, split).FA, qu.evaluate(tuned, split).FA
    print(
        f"{name:16} forgotten samples right: {found[name][0]:5.1f} %, then {found[name][1]:5.1f} %"
    )

# %%
# Random labels changed the answers and left the memory where it was: after a little training on
# others, every forgotten sample is right again, and the audit fails. ``calibrated`` perturbs the
# weights first, so that they leave the basin that the network was trained into; it ends where
# Retrain ends.
figure, axes = plt.subplots(figsize=(8, 2.8), layout="constrained")
for row, (before, after) in enumerate(found.values()):
    axes.annotate("", (after, row), (before, row), arrowprops={"arrowstyle": "->", "lw": 1.5})
    axes.plot(before, row, "o", color=AFTER)
    axes.plot(after, row, "D", color=BEFORE, markersize=5)
axes.axvline(found["Retrain"][1], color=RETRAIN, ls=":", lw=1.5)
axes.legend(axes.lines[:2], ["after forgetting", "fine-tuned"], loc="lower right")
axes.set_yticks(range(len(found)), found)
axes.invert_yaxis()
axes.set_xlabel("accuracy on the forgotten samples, in percent")
plt.show()
