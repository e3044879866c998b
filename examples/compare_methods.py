"""
Compare methods, and read the table
===================================

Which method comes nearest to a network that never saw the samples?
"""

# %%
# Each method makes a copy of the same network forget the same fifth of its training samples. The
# reference is Retrain: the network trained again without them.
import matplotlib.pyplot as plt
from memorised import original, request, retrained

import qunlearn as qu

methods = ["ft", "rl", "oeu", "calibrated"]
scores = {
    name: qu.evaluate(
        qu.forget(original(), request(), name).model, request(), reference=retrained()
    )
    for name in methods
}
aim = qu.evaluate(retrained(), request())

# %%
# FA is the accuracy on the forgotten samples, RA on the retained and TA on the test samples. MIA is
# the share of forgotten samples that an attacker takes for unseen. No figure is good by being high:
# it is good by being Retrain's. AG is the average gap.
print(f"{'':12}{'FA':>8}{'RA':>8}{'TA':>8}{'MIA':>8}{'AG':>8}")
for name, found in {"Retrain": aim, **scores}.items():
    gap = "" if name == "Retrain" else f"{found.AG:8.2f}"
    print(f"{name:12}{found.FA:8.2f}{found.RA:8.2f}{found.TA:8.2f}{found.MIA:8.2f}{gap}")

# %%
# One seed and default settings: enough to read a table, not to choose a method. ``qunlearn
# compare`` adds seeds, intervals and the noise floor.
figures = {"FA": "forgotten", "RA": "retained", "TA": "test", "MIA": "taken for unseen"}
figure, axes = plt.subplots(1, 4, figsize=(8, 2.6), sharex=True, sharey=True, layout="constrained")
for panel, (name, meaning) in zip(axes, figures.items(), strict=True):
    panel.barh(methods, [getattr(scores[m], name) - getattr(aim, name) for m in methods])
    panel.axvline(0, color="black", lw=1)
    panel.set_title(f"{name}: {meaning}", fontsize=10)
figure.supxlabel("points above (right) or below Retrain", fontsize=10)
axes[0].invert_yaxis()
plt.show()
