"""The model in PyTorch, with the weights of a model folder."""
import torch


class Net(torch.nn.Module):
    def __init__(self, m):
        super().__init__()
        t = torch.from_numpy
        self.heads = [n for n in m.heads if n]
        self.bag = torch.nn.EmbeddingBag.from_pretrained(t(m.table), mode='sum')
        self.layout = torch.nn.Linear(len(m.layout_mean), m.d)
        self.lstm = torch.nn.LSTM(m.d, m.h, bidirectional=True)
        self.out = torch.nn.Linear(2 * m.h + m.d, m.outputs)
        self.register_buffer('mean', t(m.layout_mean))
        self.register_buffer('inv_std', t(m.layout_inv_std))
        with torch.no_grad():
            self.layout.weight.copy_(t(m.layout_weights.T.copy()))
            self.layout.bias.copy_(t(m.layout_bias))
            self.out.weight.copy_(t(m.output_weights.T.copy()))
            self.out.bias.copy_(t(m.output_bias))
            for suffix, (w_in, w_rec, bias) in zip(('', '_reverse'), m.directions):
                getattr(self.lstm, 'weight_ih_l0' + suffix).copy_(t(w_in.T.copy()))  # gates i, f, g, o, as Linnet's
                getattr(self.lstm, 'weight_hh_l0' + suffix).copy_(t(w_rec.T.copy()))
                getattr(self.lstm, 'bias_ih_l0' + suffix).copy_(t(bias))
                getattr(self.lstm, 'bias_hh_l0' + suffix).zero_()
        self.eval().requires_grad_(False)

    def vectors(self, ids, offsets, weights, layout):
        """x of lines, [lines, D]."""
        standard = ((layout - self.mean) * self.inv_std).clamp(-6, 6)
        return torch.tanh(self.bag(ids, offsets, per_sample_weights=weights) + self.layout(standard))

    def probabilities(self, states, x):
        logits = self.out(torch.cat([states, x], -1))
        if len(self.heads) == 1:
            return logits.softmax(-1)
        return torch.cat([part.softmax(-1) for part in logits.split(self.heads, -1)], -1)

    def forward(self, x):
        """[steps, windows, D] to [steps, windows, K]."""
        return self.probabilities(self.lstm(x)[0], x)
