"""
Forget one person
=================

A person asks for their pictures to be deleted. The network forgets them and nobody else.
"""

# %%
# The data has a column that says whose picture each is; a rule on it names the samples.
import textwrap

import matplotlib.pyplot as plt
from memorised import AFTER, BEFORE, confidence, original, undivided

import qunlearn as qu

split = undivided().forget_where("user == user-7")
print(split)

# %%
# Forgetting works on a copy. The verdict says whether it succeeded, and how sure that is.
result = qu.forget(original(), split)
print(textwrap.fill(str(result.verdict), 90))

# %%
# The person's samples moved to where unseen samples are; everybody else's stayed.
parts = {"this person": split.forget, "all others": split.retain, "never seen": split.held_out}
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
for row, samples in enumerate(parts.values()):
    before, after = confidence(original(), samples).mean(), confidence(result.model, samples).mean()
    axes.annotate("", (after, row), (before, row), arrowprops={"arrowstyle": "->", "lw": 1.5})
    axes.plot(before, row, "s", color=BEFORE, label="before" if row == 0 else None)
    axes.plot(after, row, "o", color=AFTER, label="after" if row == 0 else None)
axes.set_yticks(range(3), parts)
axes.invert_yaxis()
axes.set_xlim(0, 1.05)
axes.set_xlabel("mean confidence in the true label")
axes.legend(loc="lower left")
plt.show()
