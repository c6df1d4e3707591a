
§
< *¼name: "carried"
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
  name: "rows"
  reshape {
    dims: 12
    dims: 12
  }
}
layer {
  name: "lstm"
  lstm {
    hidden: 12
    layers: 2
    carry: true
  }
}
layer {
  name: "flat"
  flatten {
  }
}
layer {
  name: "fc"
  dense {
    outputs: 10
  }
}
layer {
  name: "loss"
  input: "fc"
  input: "label"
  softmax_cross_entropy {
  }
}
2Ðnet: "net.textproto"
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
  order: CONTIGUOUS
}
optimizer {
  adam {
  }
}
learning_rate {
  base: 0.01
}
batch: 6
steps: 20
evaluate_every: 7
checkpoint_every: 10
keep_checkpoints: 9
distributed {
  shard_optimizer: true
}
:

algorithms6929ec472c2cc622:
	allreducering:
layouts41d0a5dc0713e068:

ranks2:
threads1:!
training datac1f5466ac90826b8@bf227631190d4b304eae9a1766ab00df285787c0140489590f82e1498a4b57a7")
"carried-00001-of-00002.safetensorsb¦x")
"carried-00002-of-00002.safetensorsÐ>û"+
$optimizer-00001-of-00002.safetensorsp¸ì¬"+
$optimizer-00002-of-00002.safetensorsÙñš
"
weights.safetensorsµ¨§Ó