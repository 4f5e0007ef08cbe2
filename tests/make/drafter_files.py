"""What the makers of drafter fixtures share: random weights, a tensor of a model, and a safetensors file."""
import json
import struct

import torch


def bf16(*shape, scale=1.0):
    return (scale * torch.randn(*shape)).bfloat16()


def read(model, name):
    """A BF16 tensor of a model."""
    b = open(model + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", b[:8])[0]
    t = json.loads(b[8:8 + n])[name]
    data = bytearray(b[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
    return torch.frombuffer(data, dtype=torch.bfloat16).reshape(t["shape"])


def write(path, tensors):
    header, data = {}, b""
    for k, v in tensors.items():
        raw = bytes(v.contiguous().view(torch.uint8).reshape(-1).tolist())
        header[k] = {"dtype": "BF16" if v.dtype == torch.bfloat16 else "F32", "shape": list(v.shape),
                     "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    header = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(header)) + header + data)
