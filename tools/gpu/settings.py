"""What run_all measures: which nets, in which precisions and ways, on which scale."""

import collections

# kind: nets of a kind need the same of the libraries.  limit_s: of one program that measures steps.
Bench = collections.namedtuple("Bench", "net folder kind batch steps limit_s")

_LENET = Bench("lenet", "lenet", "images", 64, 100, 25)
_GPT = Bench("gpt_small", "gpt_small", "sequences", 32, 20, 25)
_RESNET = Bench("resnet50", "resnet50", "images", 64, 5, 45)  # cuDNN compiles its batch norms
_LSTM = Bench("lstm_512", "lstm_512", "sequences", 64, 10, 25)
_ALEXNET = Bench("alexnet", "alexnet", "images", 128, 10, 40)
_PLAIN, _RECOMMENDED = {"plain": True}, {"tuned": False}


class Settings:
    """Of one call.  scale: of all time limits."""

    def __init__(self, call, device, scale):
        self.device, self.scale = device, scale
        self.steps = None  # bench_parts.Steps, once it has run
        if device == "cpu":
            self._tiny(call)
            return
        self.threads = []
        self.rounds = 7
        if call == "A":
            # Both kinds, both precisions, and how steps are enqueued, among the first.
            self.step_rows = [(_LENET, "TF32", {}), (_LENET, "F32", _PLAIN), (_GPT, "BF16", {}),
                              (_RESNET, "BF16", {}), (_LSTM, "TF32", {}), (_ALEXNET, "TF32", {}),
                              (_LENET, "BF16", {}), (_GPT, "TF32", {}), (_RESNET, "TF32", {}),
                              (_LSTM, "BF16", {}), (_ALEXNET, "BF16", {}), (_LENET, "F32", {}),
                              (_RESNET, "BF16", _RECOMMENDED), (_ALEXNET, "TF32", _RECOMMENDED)]
        else:
            self.step_rows = [(_GPT, "F32", {}), (_RESNET, "F32", {}), (_LENET, "F16", {}),
                              (_RESNET, "F16", {}), (_LSTM, "F16", {}), (_ALEXNET, "F32", {}),
                              (_LSTM, "F32", {}), (_LENET, "F64", {}), (_LENET, "BF16", {}),
                              (_GPT, "BF16", {})]
        self.peer_rows = [(_LENET, ["TF32", "BF16", "F32"])] + [
            (net, ["TF32", "BF16"]) for net in (_GPT, _LSTM, _RESNET, _ALEXNET)]
        self.compiled_rows = [(_LENET, ["BF16"]), (_GPT, ["BF16"])]
        self.paging_device, self.paging_bench, self.paging_rounds = device, _ALEXNET, 3
        self.saving_layouts = ["", ":contiguous"]
        self.profile_rows = [(_RESNET, "BF16"), (_GPT, "BF16"), (_LENET, "TF32"), (_ALEXNET, "BF16"),
                             (_LSTM, "TF32")]
        self.layer_rows = [(_RESNET, "BF16"), (_GPT, "BF16")]
        self.op_benches = [_LENET, _RESNET, _ALEXNET]
        self.op_precisions = ["BF16", "TF32", "F32", "F16", "F64"]
        self.judge_accuracy = True
        # As many steps as 4 epochs of all 60,000 images.
        self.training_flags = ["--epochs=20"]

    def _tiny(self, call):
        """A CPU shows that the parts work, on as little as they can be shown with."""
        lenet = _LENET._replace(batch=8, steps=2, limit_s=120)
        gpt = _GPT._replace(batch=1, steps=1, limit_s=120)
        self.threads = ["--threads=1"]
        self.rounds = self.paging_rounds = 1
        if call == "A":
            self.step_rows = [(lenet, "F32", {}), (gpt, "BF16", {}), (lenet, "F32", _PLAIN)]
        else:
            self.step_rows = [(lenet, "F16", {})]
        self.peer_rows = [(lenet, ["F32"])]
        # sim pages as a GPU does.
        self.paging_device = "sim"
        self.paging_bench = _ALEXNET._replace(batch=1, steps=1, limit_s=120)
        self.saving_layouts = [""]
        self.layer_rows = [(lenet, "F32")]
        self.op_benches, self.op_precisions = [lenet], ["F32"]
        self.judge_accuracy = False
        self.training_flags = ["--steps=20", "--checkpoint_every=10"]
