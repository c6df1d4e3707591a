
‹
P *›name: "conv"
input {
  name: "image"
  dims: 12
  dims: 12
  dims: 1
}
input {
  name: "label"
  type: LABEL
}
layer {
  name: "conv1"
  conv2d {
    filters: 6
    kernel: 3
    padding: 1
  }
}
layer {
  name: "norm1"
  batch_norm {
    synchronised: true
  }
}
layer {
  name: "relu1"
  relu {
  }
}
layer {
  name: "pool1"
  pool2d {
    kind: MAX
    kernel: 2
  }
}
layer {
  name: "conv2"
  conv2d {
    filters: 9
    kernel: 3
  }
}
layer {
  name: "pool2"
  pool2d {
    kind: AVERAGE
    kernel: 2
  }
}
layer {
  name: "flat"
  flatten {
  }
}
layer {
  name: "fc1"
  dense {
    outputs: 25
  }
}
layer {
  name: "relu2"
  relu {
  }
}
layer {
  name: "drop"
  dropout {
    rate: 0.3
  }
}
layer {
  name: "fc2"
  dense {
    outputs: 10
  }
}
layer {
  name: "loss"
  input: "fc2"
  input: "label"
  softmax_cross_entropy {
  }
}
layer {
  name: "accuracy"
  input: "fc2"
  input: "label"
  accuracy {
  }
}
2Õnet: "net.textproto"
data {
  train {
    idx {
      images: "train-images.idx"
      labels: "train-labels.idx"
    }
  }
  test {
    idx {
      images: "test-images.idx"
      labels: "test-labels.idx"
    }
  }
  normalization {
    mean: 0.3
    std: 0.3
  }
}
optimizer {
  sgd {
    momentum: 0.9
  }
  clip_norm: 1
}
learning_rate {
  base: 0.05
  warmup_steps: 5
  cosine {
  }
}
batch: 8
steps: 20
evaluate_every: 7
checkpoint_every: 10
keep_checkpoints: 9
:

algorithms6929ec472c2cc622:
	allreducering:
layoutsc87c5d74f85ff29e:

ranks1:
threads1:!
training dataffcc07f62697073c@b37cbec636904a1e62e489221d0751a389ad4790e7d0ae701b826ed4b7efe1d7"
optimizer.safetensorsDlå¢"
weights.safetensorsÉ¢`Á