"""
The same network at 2, 4 and 8 bits
===================================

Does forgetting work as well with fewer bits?
"""

# %%
# Three networks, alike but for the bits of their weights and activations, forget the same samples.
import matplotlib.pyplot as plt
from memorised import AFTER, BEFORE, RETRAIN, original, request

import qunlearn as qu

before, after = {}, {}
for bits in (2, 4, 8):
    result = qu.forget(original(bits), request())
    before[bits] = qu.evaluate(original(bits), request())
    after[bits] = qu.evaluate(result.model, request())
    print(f"{bits} bits: {result.verdict.word}")

# %%
# The aim is the grey mark: the accuracy on held-out samples, which the network never saw. Right of
# it samples are still known; left of it too much was forgotten, which a verdict may say, too.
figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
for row, bits in enumerate(before):
    axes.plot(before[bits].FA, row, "s", color=BEFORE)
    axes.plot(after[bits].FA, row, "o", color=AFTER)
    unseen = after[bits].parts["held_out"].accuracy
    axes.plot(unseen, row, "|", color=RETRAIN, markersize=22, markeredgewidth=3)
axes.legend(["before", "after", "never seen"], loc="center left", bbox_to_anchor=(1, 0.5))
axes.set_yticks(range(3), [f"{bits} bits" for bits in before])
axes.set_ylim(-0.6, 2.6)
axes.set_xlabel("accuracy on forgotten and on held-out samples, in percent")
plt.show()

# %%
# Accuracy on retained and on test samples, before and after forgetting:
for bits, now in after.items():
    was = before[bits]
    print(f"{bits} bits: RA {was.RA:.1f} to {now.RA:.1f}, TA {was.TA:.1f} to {now.TA:.1f}")
