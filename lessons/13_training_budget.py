# %% [markdown]
# # 13 Training within a budget
#
# A model that you understand still has to be trained, on a machine that has only so much memory and only so many hours. This unit is
# about four ways to make ends meet: a batch in parts, activations that are forgotten and computed again, numbers with fewer
# digits, and several processes. Each of them is proved to be what it says. At the end stands the capstone: you train a
# translator made of your own attention.
#
# **After this unit you can**
#
# - show that accumulation gives the gradient of the big batch (13-a);
# - trade time for memory by checkpointing, at equal gradients (13-b);
# - say what must stay in float32, and why (13-c);
# - measure the parallelism of Transformers against RNNs (13-d);
# - train a model within a budget (13-e).
#
# **You need** unit 10 (the model and its loss) and unit 12 (what attention costs). **Time**: 60 minutes to read and play; all cells
# together take less than a minute.
#
# Notation as before: $B$ sentences of $T$ words, width $D$, $H$ heads, feed-forward width $F$, $C$ words in the vocabulary. New: $L$
# layers, and $P$ parameters in all.

# %%
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)  # for networks this small, more threads would mostly wait for each other

# %%
from course_lib import plots, widgets
from course_lib.blocks import EncoderBlock
from course_lib.capstone import own_parts
from course_lib.data import PAD, batches, number_pairs
from course_lib.decoding import greedy
from course_lib.device import generator, seed_all
from course_lib.metrics import exact_match
from course_lib.rnn import LeftToRight
from course_lib.switches import checkpointed
from course_lib.training import TrainConfig, add_gradients, autocast, cross_entropy_sum, fit
from course_lib.transformer import PAPER_BASE, Transformer, TransformerConfig
from course_lib.widgets.budget import Sizes

# %% [markdown]
# ## Training keeps four things in memory
#
# 1. the **parameters**, $P$ numbers;
# 2. their **gradients**, another $P$;
# 3. what the **optimizer** remembers: Adam keeps two averages for each parameter, $2P$;
# 4. the **activations**: what each layer must keep on the way forward so that it can go back.
#
# **Predict**: you double the batch. Which of the four grow? Let us count bytes. torch lets us look at every tensor that is kept for the
# way back (`saved_tensors_hooks`); each piece of memory counts once, and parameters, which are there anyway, do not count.


# %%
def kept_bytes(model, run):
    """Bytes that autograd keeps during run(), parameters left out."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found, alive = {}, []

    def pack(tensor):
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in own:
            found[memory.data_ptr()] = memory.nbytes()
        alive.append(tensor)  # so that no address is used twice
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(found.values())


# %% [markdown]
# A stack of four encoder blocks, small enough to count by hand:


# %%
class Stack(nn.Module):
    def __init__(self, layers, d_model, heads, d_ff):
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(d_model, heads, d_ff) for _ in range(layers))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


L, D, H, F = 4, 64, 4, 256
seed_all(0)
stack = Stack(L, D, H, F)
P = sum(p.numel() for p in stack.parameters())
small, large = (kept_bytes(stack, lambda b=b: stack(torch.randn(b, 16, D))) for b in (8, 16))
print(f"parameters {4 * P:,} bytes; kept for the way back: {small:,} for 8 sentences, {large:,} for 16")
assert abs(large / small - 2) < 0.05  # activations grow with the batch; the other three do not know of it

# %% [markdown]
# **Predict**: how many numbers does one block keep for one word? Count along unit 09's block. What enters each norm ($2D$), what leaves it
# ($2D$), queries, keys and values ($3D$), what the heads read ($D$), the hidden layer ($F$); and a few small sums for softmax and
# norms ($H + 4$). The outputs of the sublayers are not needed: to go back through a sum one needs nothing.

# %%
per_word = small / 4 / (8 * 16 * L)
by_hand = 8 * D + F + H + 4
print(f"counted {per_word:.0f} numbers, by hand {by_hand}")
assert abs(per_word / by_hand - 1) < 0.1

# %% [markdown]
# So the bill for one step, in float32, is $16 P$ bytes and about $4 \cdot B\,T\,L\,(8D + F)$ bytes besides. (With the explicit formula of unit 04
# there are $H\,T$ weights for each word as well: unit 12's reason to avoid it.) The first part belongs to the model. The second belongs to the
# batch, and here something can be done.
#
# ## A batch in parts has the gradient of the whole
#
# The loss of a batch is a sum over its words, divided by their number $N$, and the gradient of a sum is the sum of the gradients:
#
# $$\nabla \frac{1}{N} \sum_{n} \ell_n \;=\; \sum_{\text{parts}} \; \nabla \frac{1}{N} \sum_{n \in \text{part}} \ell_n$$
#
# So let a quarter of the batch go forward and backward, then the next quarter; torch *adds* gradients to `.grad` until
# somebody clears them. This is **gradient accumulation**. **Predict**: with the right divisor, how far is it from the gradient of the big batch?

# %%
spoken = number_pairs("german", train=9_000, test=600)
sizes = TransformerConfig(len(spoken.source_words), len(spoken.target_words))
seed_all(0)
model = Transformer(sizes).double()
mixed = [7, 45, 300, 777_777, 12, 123_456, 5, 99_999]
batch = next(batches(*spoken.encode(mixed), 8, generator=None))


def gradient_of(losses):
    model.zero_grad()
    for loss in losses:
        loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


# %%
def part_sum(rows):
    """Summed loss of some rows, and how many real words they have."""
    return cross_entropy_sum(model(batch.source[rows], batch.target_in[rows]), batch.target_out[rows])


quarters = torch.arange(8).tensor_split(4)
N = (batch.target_out != PAD).sum()
whole = gradient_of([part_sum(slice(None))[0] / N])
parts = gradient_of(part_sum(rows)[0] / N for rows in quarters)
print(f"largest difference {(whole - parts).abs().max():.1e}, largest gradient {whole.abs().max():.2f}")
assert torch.allclose(whole, parts, rtol=0, atol=1e-12)

# %% [markdown]
# The same, but for rounding. Look at `N`: it is the number of words of the *whole* batch.
#
# **What is wrong here?** Two loops that are often seen. The first takes the mean of each part and divides by the number of parts. The
# second clears the gradients inside the loop. **Predict** what each computes. (The parts hold short and long numbers.)

# %%
print("words in each part:", [int(part_sum(rows)[1]) for rows in quarters])
mean_of_means = gradient_of(total / count / 4 for total, count in map(part_sum, quarters))
off = (mean_of_means - whole).norm() / whole.norm()
print(f"the mean of means is off by {off:.0%}")
assert off > 0.1  # a word in a part with few words pulls harder than one in a part with many

# %%
only_last = None
for rows in quarters:
    only_last = gradient_of([part_sum(rows)[0] / N])  # clears what the parts before have added
assert torch.allclose(only_last, gradient_of([part_sum(quarters[-1])[0] / N]))  # the last part alone is left
assert (only_last - whole).norm() > 0.3 * whole.norm()

# %% [markdown]
# And the memory? **Predict** the bytes that a quarter keeps, against the whole batch.

# %%
all_bytes = kept_bytes(model, lambda: part_sum(slice(None)))
most = max(kept_bytes(model, lambda rows=rows: part_sum(rows)) for rows in quarters)
print(f"{all_bytes:,} bytes for the batch, {most:,} for its largest part: {most / all_bytes:.0%}")
assert most < 0.4 * all_bytes

# %% [markdown]
# In `fit` this is `accumulate=4`: the same losses, step after step, in a quarter of the room. The price: products of smaller matrices,
# which use a large machine less well. (Not the same where a layer looks at the whole batch, as batch normalisation does. Layer
# normalisation looks at one word: another reason why Transformers have it.)


# %%
def train(steps, seed=0, schedule=None, **options):
    seed_all(seed)
    made = Transformer(sizes)
    pairs = batches(spoken.source_train, spoken.target_train, 32, generator=generator(seed), steps=steps)
    return made, fit(made, pairs, TrainConfig(steps=steps, **options), schedule=schedule, progress=steps > 100)


at_once, in_parts = train(20)[1].losses, train(20, accumulate=4)[1].losses
assert all(abs(a - b) < 1e-3 for a, b in zip(at_once, in_parts, strict=True))
print(f"after 20 steps: {at_once[-1]:.5f} at once, {in_parts[-1]:.5f} in four parts")

# %% [markdown]
# ## Checkpointing forgets, and computes again
#
# The other way to save activations: keep only what *enters* each block, and forget the rest. When the way back comes to a block, compute
# it once more from its input, and now keep everything, for this one block. (The word has nothing to do with files that save
# a training run, which are called checkpoints, too.)
#
# By hand, for two blocks. Forward without a graph; then backward, the last block first:

# %%
x_BTD = torch.randn(8, 16, D, generator=generator(0))
first, second = stack.blocks[:2]
with torch.no_grad():
    middle = first(x_BTD)  # all that is kept: the inputs x and middle
start_2 = middle.requires_grad_()
(g_middle,) = torch.autograd.grad(second(start_2).sum(), start_2)  # second block, computed again
start_1 = x_BTD.clone().requires_grad_()
(g_x,) = torch.autograd.grad(first(start_1), start_1, g_middle)  # first block, computed again

start = x_BTD.clone().requires_grad_()
(direct,) = torch.autograd.grad(second(first(start)).sum(), start)
assert torch.equal(g_x, direct)  # bit for bit: the same operations on the same numbers

# %% [markdown]
# `checkpointed` of the library does so for any modules, with torch's own function. **Predict** for our four blocks: which share of the bytes is
# still kept on the way forward? How many times does each block run in one step?

# %%
calls = []
hooks = [block.attention.register_forward_hook(lambda *_: calls.append(1)) for block in stack.blocks]


def one_step():
    stack.zero_grad()
    stack(x_BTD.clone().requires_grad_()).square().mean().backward()
    return torch.cat([p.grad.flatten() for p in stack.parameters()])


plain, plain_calls = one_step(), len(calls)
with checkpointed(*stack.blocks):
    saved, saved_calls = one_step(), len(calls) - plain_calls
for hook in hooks:
    hook.remove()
assert torch.equal(plain, saved)  # equal gradients, to the last bit
assert (plain_calls, saved_calls) == (4, 8)  # each block runs twice


# %%
def forward():
    return stack(x_BTD.clone().requires_grad_())


full = kept_bytes(stack, forward)
with checkpointed(*stack.blocks):
    thin = kept_bytes(stack, forward)
peak = thin + full // L - x_BTD.nbytes  # while one block is computed again, all that it keeps is there besides
print(
    f"{full:,} bytes kept, {thin:,} with checkpointing ({thin / full:.0%}); at most {peak:,} at any time ({peak / full:.0%})"
)
assert thin < 0.12 * full and peak < 0.4 * full

# %% [markdown]
# Of $8D + F$ numbers for a word one input of $D$ is left, 1 of 12. The price is one more way forward. On the way back each product $x W$
# needs two (one for the gradient of $x$, one for that of $W$), so a step costs 4 ways forward instead of 3: a third more time.
#
# **What is wrong here?** Dropout draws at random which numbers to drop. A block that is computed again must draw the *same* ones. torch
# takes care of that (`preserve_rng_state`); somebody switches it off to save time. **Predict** what happens to the gradient.

# %%
drop = nn.Sequential(nn.Linear(D, D), nn.Dropout(0.5))


def dropped(keep_state):
    start = x_BTD.clone().requires_grad_()
    seed_all(3)
    if keep_state is None:
        y = drop(start)
    else:
        y = checkpoint(drop, start, use_reentrant=False, preserve_rng_state=keep_state)
    (gradient,) = torch.autograd.grad(y.sum(), start)
    return y.detach(), gradient


(y_plain, g_plain), (y_kept, g_kept), (y_lost, g_lost) = map(dropped, (None, True, False))
assert torch.equal(y_plain, y_kept) and torch.equal(g_plain, g_kept)
assert torch.equal(y_plain, y_lost) and not torch.allclose(g_plain, g_lost)  # right numbers, wrong gradient

# %% [markdown]
# Nothing complains: the output is right, the gradient belongs to another network.
#
# ## bfloat16 keeps the range and drops the digits
#
# A float has a sign, an exponent (how large?) and digits (how exact?). Half the bytes means fewer of something:
#
# | type | bytes | exponent | binary digits | largest | step above 1 |
# |---|---|---|---|---|---|
# | float32 | 4 | 8 bits | 24 | $3 \cdot 10^{38}$ | $1/8388608$ |
# | float16 | 2 | 5 bits | 11 | 65504 | $1/1024$ |
# | bfloat16 | 2 | 8 bits | 8 | $3 \cdot 10^{38}$ | $1/128$ |
#
# **Predict**, in bfloat16: $256 + 1$? $1 + 0.001$? And in float16: $300 \cdot 300$? $-10^9$, with which some people mask?

# %%
half, short = torch.float16, torch.bfloat16
assert torch.tensor(256, dtype=short) + 1 == 256  # from 256 on there are only even numbers
assert torch.tensor(1, dtype=short) + 0.001 == 1
assert torch.tensor(300, dtype=half) * 300 == torch.inf  # float16 runs out of range …
assert torch.tensor(300, dtype=short) * 300 == 90_112  # … bfloat16 does not; it rounds to a multiple of 512
assert torch.tensor(-1e9).to(half) == -torch.inf  # a row masked with it everywhere: NaN, as in unit 07
assert torch.finfo(short).max > 1e38

# %% [markdown]
# Products stand this well. Each is off by 0.4 % at most, as often up as down, and a processor with units for bfloat16 adds them up in
# float32. **Predict** the relative error of a product of two 512-wide matrices, with rounded factors.

# %%
a, b = torch.randn(2, 512, 512, generator=generator(1))
error = (a.to(short) @ b.to(short)).float() - a @ b
print(f"relative error of the product: {error.norm() / (a @ b).norm():.2%}")
assert error.norm() < 0.01 * (a @ b).norm()

# %% [markdown]
# ## What adds up small things stays in float32
#
# Errors of 0.4 % average out. What does not average out is a small number added to a large one, again and again: it is lost *every* time.
#
# **The loss** adds up thousands of words. **Predict**: add 1.0 a thousand times, in bfloat16, one after the other. Where does it end?

# %%
total = torch.zeros((), dtype=short)
for _ in range(1000):
    total = total + 1
assert total == 256

# %% [markdown]
# **The parameters** change by little in each step. **What is wrong here?** `model.bfloat16()` instead of autocast: it runs, in half of
# the memory. **Predict**: with a learning rate of 0.00006, as for the largest GPT-3 (Brown and others 2020, table 2.1), how many of
# the parameters does a step of Adam still move?


# %%
def share_moved(dtype):
    seed_all(0)
    made = Transformer(sizes).to(dtype)
    optimizer = torch.optim.AdamW(made.parameters(), lr=6e-5, weight_decay=0.0)
    before = [p.detach().clone() for p in made.parameters()]
    add_gradients(made, batch, TrainConfig(steps=1))
    touched = [p.grad != 0 for p in made.parameters()]
    optimizer.step()
    moved = [(p != q)[t] for p, q, t in zip(made.parameters(), before, touched, strict=True)]
    return torch.cat(moved).float().mean()


print(f"float32: {share_moved(torch.float32):.1%} of the parameters move, bfloat16: {share_moved(short):.1%}")
assert share_moved(torch.float32) > 0.99 and share_moved(short) < 0.5

# %% [markdown]
# The others stay where they are, whatever the gradient says: the change is less than half a step of theirs. So the optimizer works on
# float32: parameters, gradients that are added up, averages.
#
# **Softmax and norms** are sums, too. **Predict** the softmax of 1000 equal scores in bfloat16: by hand, with the sum from above, and by torch.

# %%
scores = torch.zeros(1000, dtype=short)
naive = scores.exp() / total
assert naive[0] == 1 / 256  # the weights sum to 4, not to 1
inside = scores.softmax(dim=-1)
assert abs(float(inside[0]) * 1000 - 1) < 0.01  # torch adds up in float32, and rounds the result once

# %% [markdown]
# What remains for bfloat16 are the factors of the products, and what is kept of them for the way back. **Autocast** sorts it so, operation by
# operation. **Predict** the types of what leaves a norm and a product, and of the parameters:

# %%
block, x = stack.blocks[0], torch.randn(8, 16, D)
with autocast(x.device, "bfloat16"):
    normed = block.skip_1.norm(x)
    hidden = block.feed_forward.w_1(normed)
types = {"norm": normed.dtype, "product": hidden.dtype, "parameters": block.feed_forward.w_1.weight.dtype}
print(types)
assert types == {"norm": torch.float32, "product": short, "parameters": torch.float32}
assert cross_entropy_sum(hidden, torch.ones(8, 16).long())[0].dtype == torch.float32  # the course's loss widens first

# %% [markdown]
# "Half precision, except for the loss", as short notes have it, is a good start; the full list is: except for the loss, softmax, norms,
# parameters, gradients and the optimizer. (float16 needs one thing more: its small gradients vanish below $6 \cdot 10^{-8}$, so the loss is
# multiplied by a large number first, and the gradient divided by it. That is what a *GradScaler* does. bfloat16 has the range of float32, and
# does without.)
#
# **Predict**: 200 steps in float32 and under bfloat16 autocast. How far apart are the losses at the end? And the bytes kept, on long texts?

# %%
wide, wide_history = train(200, matmul="medium")

# %%
narrow, narrow_history = train(200, precision="bfloat16")
print(f"loss {wide_history.losses[-1]:.4f} in float32, {narrow_history.losses[-1]:.4f} with bfloat16")
plots.curves({"float32": wide_history.losses, "bfloat16 autocast": narrow_history.losses}, title="Two precisions, one curve",
             xlabel="training step", ylabel="loss per word", log=True,
             alt="Both losses fall together, from about 4 to about 0.01, and lie on each other.")  # fmt: skip


# %%
def right(made):
    said = greedy(made, spoken.source_test, max_length=spoken.target_test.shape[1])
    return exact_match(*([spoken.target_words.decode(row) for row in rows] for rows in (said, spoken.target_test)))


print(f"{right(wide):.1%} of the unseen numbers are right in float32, {right(narrow):.1%} with bfloat16")
assert abs(right(wide) - right(narrow)) < 0.04 and right(narrow) > 0.9
x = torch.randn(32, 64, D)
with autocast(x.device, "bfloat16"):
    half_bytes = kept_bytes(stack, lambda: stack(x))
print(f"kept for the way back: {half_bytes / kept_bytes(stack, lambda: stack(x)):.0%} of float32's bytes")
assert half_bytes < 0.85 * kept_bytes(stack, lambda: stack(x))

# %% [markdown]
# See how the two curves lie on each other. The bytes are more than half, since what enters the norms stays wide, and rounded
# copies of the matrices come in. Time is another matter: a CPU or GPU with units for bfloat16 gains much, another nothing.
#
# ## A budget is spent where the bytes are
#
# **Play**: three models and a machine of 8 GB. Begin with the paper's model and find the largest batch that fits. Then: parts,
# checkpointing, bfloat16. Which of the bars does each of them move? Which two never move? Then GPT-2 with checkpointing on: which bar is the
# longest now, and which trick makes that one smaller? Arrow keys work, too.


# %%
def counted(made):
    return sum(p.numel() for p in made.parameters())


with torch.device("meta"):
    paper = counted(Transformer(PAPER_BASE))
course = counted(Transformer(sizes))
models = [
    Sizes("the paper's base model", paper, 12, 512, 2048, 8, 100, 37_000),
    Sizes("GPT-2, small", 124_439_808, 12, 768, 3072, 12, 1024, 50_257),
    Sizes("this course's", course, 2, 64, 256, 4, 12, sizes.target_vocab),
]
widgets.Budget(models, budget=8e9, batch=64)

# %% [markdown]
# **Predict**: GPT-2 with a batch of 32, float32, no tricks: does it fit? With all three tricks?

# %%
look = widgets.Budget(models, budget=8e9, batch=32)
look.model = 1
before = look.numbers()
look.parts, look.again, look.precision = 32, True, "bfloat16"
after = look.numbers()
print(f"{before['total'] / 1e9:.0f} GB, and {after['total'] / 1e9:.1f} GB with all three")
assert before["share"] > 1 > after["share"]
assert after["bytes"][1] == before["bytes"][1]  # gradients (and Adam's averages): no trick of these makes them smaller
look.parts, look.again, look.precision = 1, False, "float32"
assert look.numbers()["bytes"][3] == 32 * 1024 * 12 * 4 * (8 * 768 + 3072 + 12 + 4)  # as counted above

# %% [markdown]
# ## Two processes are one large batch
#
# What one process cannot do in parts one after the other, several can do side by side: each has a copy of the model and takes *its rows*
# of every batch; then all add up their gradients (**all-reduce**) and make the same step. This is data-parallel training. It is
# accumulation again, in space and not in time, with the same divisor: the words of the whole batch.
#
# `torchrun` starts the processes and tells each its number, its *rank*. On CPUs they talk by *gloo*, on GPUs by *NCCL*. Here are two, on
# this machine, which talk by the loopback address only. They start in the background:

# %%
script = """
import os, sys, torch
from course_lib.data import batches, number_pairs
from course_lib.device import generator, seed_all
from course_lib.training import TrainConfig, fit
from course_lib.transformer import Transformer, TransformerConfig
torch.set_num_threads(1)
spoken = number_pairs("german", train=500, test=1)
seed_all(int(os.environ["RANK"]))  # each begins with other numbers; fit sends everybody those of rank 0
model = Transformer(TransformerConfig(len(spoken.source_words), len(spoken.target_words))).double()
pairs = batches(spoken.source_train, spoken.target_train, 32, generator=generator(0), steps=10)
fit(model, pairs, TrainConfig(steps=10), progress=False)
torch.save(model.state_dict(), os.path.join(sys.argv[1], f"rank{os.environ['RANK']}.pt"))
"""

# %%
folder = tempfile.TemporaryDirectory()
program = Path(folder.name) / "both.py"
program.write_text(script)
torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
team = subprocess.Popen(
    [*torchrun, str(program), folder.name],
    env=os.environ | loopback | {"OMP_NUM_THREADS": "1"},
    stderr=subprocess.PIPE,
    text=True,
)

# %% [markdown]
# While they work: **what is wrong here?** "Each process takes the mean loss of its rows, and the gradients are averaged over the processes."
# That is what torch's `DistributedDataParallel` does with a mean loss. **Predict**: rank 0 has four short numbers, rank 1 four long ones. Is
# it the gradient of the batch?

# %%
order = sorted(range(8), key=lambda i: int((batch.target_out[i] != PAD).sum()))
ranks = torch.tensor(order).tensor_split(2)
print("words of each rank:", [int(part_sum(rows)[1]) for rows in ranks])
averaged = gradient_of(total / count / 2 for total, count in map(part_sum, ranks))
assert (averaged - whole).norm() > 0.05 * whole.norm()  # the mean of means once more
summed = gradient_of(part_sum(rows)[0] / N for rows in ranks)
assert torch.allclose(summed, whole, rtol=0, atol=1e-12)

# %% [markdown]
# The library therefore divides by the words of all ranks, and adds. **Predict**: the two processes began with different numbers. Do they end
# with the same ones? And with those of a single process that saw the whole batches?

# %%
few = number_pairs("german", train=500, test=1)
seed_all(0)
alone = Transformer(sizes).double()
pairs = batches(few.source_train, few.target_train, 32, generator=generator(0), steps=10)
fit(alone, pairs, TrainConfig(steps=10), progress=False)

# %%
_, errors = team.communicate(timeout=55)
assert team.returncode == 0, errors[-2000:]
zero, one = (torch.load(Path(folder.name) / f"rank{rank}.pt", weights_only=True) for rank in (0, 1))
folder.cleanup()
assert all(torch.equal(zero[name], one[name]) for name in zero)  # replicas stay identical, to the last bit
apart = max((zero[name] - value).abs().max() for name, value in alone.state_dict().items())
print(f"two processes and one: {apart:.1e} apart after ten steps")
assert apart < 1e-8

# %% [markdown]
# On a machine with two GPUs it is the same command; nothing in the program names a device's number or an address.
#
# ## A Transformer's words do not wait for each other
#
# More workers help only where there is something to do side by side. Unit 01 counted steps that wait; here is the measure for
# any computation:
#
# - **work**: all operations, one after the other;
# - **span**: the longest chain of operations in which each waits for the one before it. No number of workers gets below it;
# - **parallelism** = work / span: how many workers can be kept busy.
#
# We can read both off the graph that autograd builds. **Predict**: a GRU and an encoder block read 16, 32 and 64 words. How does the longest chain grow?


# %%
def work_and_span(y):
    """Operations behind y, and the longest chain among them."""
    depth, stack_ = {}, [y.grad_fn]
    while stack_:
        node = stack_[-1]
        before = [n for n, _ in node.next_functions if n is not None]
        unknown = [n for n in before if n not in depth]
        if unknown:
            stack_ += unknown
        else:
            depth[node] = 1 + max((depth[n] for n in before), default=0)
            stack_.pop()
    return len(depth), max(depth.values())


# %%
reader, block = LeftToRight(D, D), EncoderBlock(D, H, F)
chains = {"RNN": {}, "Transformer block": {}}
for words in (16, 32, 64, 128):
    x = torch.randn(4, words, D)
    chains["RNN"][words] = work_and_span(reader(x)[0].sum())
    chains["Transformer block"][words] = work_and_span(block(x).sum())
for name, found in chains.items():
    print(f"{name:18}", {words: f"chain of {span}" for words, (_, span) in found.items()})
spans = {name: [span for _, span in found.values()] for name, found in chains.items()}
assert spans["RNN"][3] > 1.9 * spans["RNN"][2] > 3.6 * spans["RNN"][1]  # twice the words, twice the chain
assert len(set(spans["Transformer block"])) == 1  # the same chain for any length

# %% [markdown]
# The block does more arithmetic for a long text (unit 12: $T^2$), but in few large products, which a machine may spread over all its
# units. The RNN has many small products in a row. **Predict**: even on one core, who is faster at 256 words?


# %%
def seconds(run):
    began = time.perf_counter()
    run().sum().backward()
    return time.perf_counter() - began


def pace(words, rounds=4):
    x = torch.randn(4, words, D)
    runs = {"RNN": lambda: reader(x)[0], "Transformer block": lambda: block(x)}
    times = {name: [] for name in runs}
    for _ in range(rounds):  # in turn, so that whatever else the machine does falls on both
        for name, run in runs.items():
            times[name].append(seconds(run))
    return {name: min(found) for name, found in times.items()}


timed = {words: pace(words) for words in (16, 64, 256)}
for words, found in timed.items():
    print(words, "words:", {name: f"{1000 * t:.1f} ms" for name, t in found.items()})
assert timed[256]["RNN"] > 1.3 * timed[256]["Transformer block"]

# %% [markdown]
# On a GPU with thousands of units the gap is far wider: that, and not fewer operations, is why Transformers could be trained on so much
# text. When they *write*, they lose the advantage: each word waits for the one before it, as in an RNN (unit 11's cache makes the
# steps cheap, not fewer).
#
# ## The way down is part of the budget
#
# Budget also means steps. **Predict**: two runs of 200 steps, one with a constant learning rate, one with warm-up and a straight way down to 0. Who
# translates more unseen numbers? And who has the lower loss on its last batch?

# %%
flat, flat_history = train(200, matmul="medium", schedule=lambda step: 1.0)
print(f"constant rate: {right(flat):.1%} right; up and down: {right(wide):.1%} right")
assert right(wide) > right(flat) + 0.005

# %% [markdown]
# Large steps all the way keep shaking the parameters around the place where they should come to rest. The same 200 steps, spent
# better. So decide first how many steps you can pay for, and let the schedule end there.
#
# ## The last model is made of your own parts
#
# The capstone, in the exercises of this unit: `own_parts()` collects what you wrote in units 06 to 09, you assemble a translator of it (13.6), train it in
# some seconds, and hand in the file `13_model.safetensors` (13.7). It is asked for numbers that were held back from everybody's training data.
# Here, in the folder of the lectures, there are no exercise notebooks; in `exercises/` it finds yours:

# %%
own_parts("../exercises")

# %% [markdown]
# Where a line says "the course's", a part of the course steps in, with the same signature and the same parameters. You can train right
# away, and replace it by your own later.
#
# ## Barriers and solutions
#
# | barrier | solution |
# |---|---|
# | an RNN squeezes the sentence into one state (01) | attention reads all states (02) |
# | every word waits for the one before it (01) | attention: the longest chain does not grow with the length (04, 13) |
# | no notion of order (03) | positions (08) |
# | only weighted averages (03) | feed-forward networks (09) |
# | must not see the future (07) | a causal mask (07) |
# | deep stacks do not train (09) | residuals and norms (09) |
# | cost grows with $T^2$ (12) | sparse, low-rank, tiled attention (12) |
# | the batch does not fit | accumulation: parts, one divisor (13) |
# | the activations do not fit | checkpointing: forget, and compute again (13) |
# | four bytes a number | bfloat16 for products; sums stay in float32 (13) |
# | one machine is too slow | several processes, gradients added up (13) |
#
# **Three takeaways**
#
# 1. A batch in parts, in time or over processes, has exactly the gradient of the whole, if every part is divided by the words of the whole.
# 2. Checkpointing pays a third more time for a small part of the memory, at bit-equal gradients; bfloat16 is for products, and
#    whatever adds small things to large ones stays in float32.
# 3. A Transformer's longest chain of operations does not grow with the text: that is what makes large machines worth their price.
#
# **To think about**
#
# - Checkpoints at every block keep $L$ inputs and one block. What if only every $k$-th input is kept? For which $k$ is the peak smallest?
# - 16 bytes for each parameter remain, whatever you do here. Several processes hold the same 16 bytes each: must they?
# - Accumulation over 4 parts and 4 processes with a part each give the same gradient. When would you choose which?
# - Why does dropout make the two-process run differ from the one-process run, though both are right?
#
# **To read**
#
# - T. Chen, B. Xu, C. Zhang, C. Guestrin, *Training Deep Nets with Sublinear Memory Cost*, 2016: checkpointing, and why $\sqrt{L}$ of them.
# - P. Micikevicius and others, *Mixed Precision Training*, 2018: float32 master weights and loss scaling.
# - S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*, 2020: sharing out the 16 bytes.
# - PyTorch's documentation of `torch.utils.checkpoint`, `torch.autocast` and `torchrun`.
#
# **On** to the exercises, `exercises/13_training_budget.ipynb`, and to the capstone. It is the last unit: what comes after it, you choose.
