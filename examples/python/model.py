"""A model that stays loaded: `enter` runs once per worker, `generate` for every call.

The model here counts letters that follow each other in a text and continues a prompt with the likeliest ones; a real
one reads weights in `load` and takes gpus=1.
"""
import collections

import billow

TEXT = "the gateway wakes a worker, the worker loads the model, the model answers the caller " * 20


@billow.cls(gpus=0.25, max=2, idle="2m")
class Model:
    def __init__(self, size=1):
        self.size = size

    @billow.enter
    def load(self):
        self.next = collections.defaultdict(collections.Counter)
        for at in range(len(TEXT) - self.size):
            self.next[TEXT[at : at + self.size]][TEXT[at + self.size]] += 1

    @billow.method
    def generate(self, prompt, letters=20):
        for _ in range(letters):
            found = self.next.get(prompt[-self.size :])
            prompt += found.most_common(1)[0][0] if found else " "
        return prompt

    @billow.method
    def stream(self, prompt, letters=20):
        for _ in range(letters):
            longer = self.generate(prompt, 1)
            yield longer[-1]
            prompt = longer

    @billow.exit
    def leave(self):
        print("this worker ends")


if __name__ == "__main__":
    model = Model(size=4)
    print(model.generate.remote("the w"))
    print("".join(model.stream.remote("the m", 30)))
    for line in model.generate.map(["the c", "a wor", "the g"]):
        print(line)
    pool = billow.pool_of(model)
    print(f"{pool.name}: ${pool.cost:.4f}")
