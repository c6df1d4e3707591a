"""Recurrent layers, for layers.py: their shapes and parameters, and what PyTorch computes."""

from texts import whole, word

_N = "N"  # the samples' extent, as in layers.py


def recurrent(l, x, *lengths, w, when):
    """nn.LSTM, nn.GRU or nn.RNN; packed, where there are lengths."""
    import torch
    c, time_axis = l.config, 1 - l.input_shapes[0].index(_N)
    more = {"proj_size": whole(c, "projection", 0)} if l.kind == "lstm" else {}
    if l.kind == "rnn":
        more = {"nonlinearity": word(c, "nonlinearity", "TANH").lower()}
    module = getattr(torch.nn, l.kind.upper())(
        x.shape[-1], whole(c, "hidden"), whole(c, "layers", 1), dtype=x.dtype,
        bidirectional=directions(c) == 2, **more)
    x = x.movedim(time_axis, 0)
    taken = x
    if lengths:  # of 0: PyTorch has none; what it makes of 1 does not count
        rnn, counts = torch.nn.utils.rnn, (lengths[0] > 0).double()[:, None]
        taken = rnn.pack_padded_sequence(x, lengths[0].clamp(min=1), enforce_sorted=False)
    y, state = torch.func.functional_call(module, dict(w), (taken,))
    h = state[0] if l.kind == "lstm" else state
    last = torch.cat(list(h[-directions(c):]), -1)
    if lengths:
        y = rnn.pad_packed_sequence(y, total_length=len(x))[0] * counts
        last = last * counts
    y = y.movedim(0, time_axis)
    return (y, last) if word(c, "last", "false") == "true" else y


def directions(config):
    return 2 if word(config, "bidirectional", "false") == "true" else 1


def width_of(config):
    return whole(config, "projection", 0) or whole(config, "hidden")


def recurrent_shapes(config, s, *others):
    columns = directions(config) * width_of(config)
    return [s[:-1] + [columns]] + [[_N, columns]] * (word(config, "last", "false") == "true")


def recurrent_parameters(gates):
    def parameters(config, s):
        result, inputs = {}, s[-1]
        rows, width = gates * whole(config, "hidden"), width_of(config)
        for layer in range(whole(config, "layers", 1)):
            for end in ["", "_reverse"][:directions(config)]:
                result |= {f"weight_ih_l{layer}{end}": ([rows, inputs], inputs),
                           f"weight_hh_l{layer}{end}": ([rows, width], width),
                           f"bias_ih_l{layer}{end}": ([rows], inputs),
                           f"bias_hh_l{layer}{end}": ([rows], width)}
                if "projection" in config:
                    result[f"weight_hr_l{layer}{end}"] = [width, rows // gates], rows // gates
            inputs = directions(config) * width
        return result
    return parameters
