"""
Export and run
==============

What was forgotten in PyTorch must be forgotten in the file that is shipped.
"""

# %%
# ``export`` writes weights at their bit width, runs the file in ONNX Runtime beside PyTorch, and
# saves it only if their predictions agree.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import onnxruntime
import torch
from memorised import AFTER, BEFORE, confidence, noisy_digits, original, request

import qunlearn as qu

result = qu.forget(original(), request())
path = Path(tempfile.mkdtemp()) / "model.onnx"
exported = qu.export(result.model, path)
floats = sum(p.numel() for p in result.model.parameters()) * 4
print(f"{exported.bytes:,} bytes, {floats:,} in full precision")
print(f"{exported.agreement.top1:.2f} % of the samples get the same class")

# %%
# The file needs ONNX Runtime and nothing of qunlearn.
session = onnxruntime.InferenceSession(path)
rows, data = request().forget, noisy_digits()
(logits,) = session.run(
    None, {session.get_inputs()[0].name: data.normalise(data.images[rows]).numpy()}
)
shipped = torch.tensor(logits).softmax(1).gather(1, data.labels[rows][:, None])[:, 0]

# %%
# Confidence in the true label of each forgotten sample, in the file and in PyTorch: the same, and
# no longer that of the original.
figure, axes = plt.subplots(figsize=(4.5, 4), layout="constrained")
axes.plot([0, 1], [0, 1], color="#cccccc", zorder=0)
for name, network, colour in (("original", original(), BEFORE), ("forgotten", result.model, AFTER)):
    axes.plot(confidence(network, rows), shipped, ".", color=colour, label=name)
axes.set_xlabel("confidence in PyTorch")
axes.set_ylabel("confidence of the exported file")
axes.legend()
plt.show()
