package config

import "github.com/lorafuse/lorafuse/internal/data"

// TaskEmbedding is the task of embedding models: vectors of texts.
const TaskEmbedding Task = "embedding"

var embedding = definition{
	name: TaskEmbedding, adapter: "FEATURE_EXTRACTION", texts: true,
	doc:     "text embeddings from matching pairs (rows of anchor, positive, and optionally negative), with the pooling and dense layers of the model's sentence-transformers files. The adapter has the names of the model's body (AutoModel), and the model's own dropout is off.",
	section: "For task: embedding. Each anchor is matched with its positive among the positives and negatives of all rows of its micro-batch (batch_size rows), by the cross-entropy of scaled cosines; with gradient_accumulation_steps each micro-batch is separate, as in sentence-transformers' MultipleNegativesRankingLoss.",
	rows:    func(_ *Config, o *data.Options) { o.Rows = data.PairRows },
}

// Embedding configures the training of embeddings.
type Embedding struct {
	Scale float64 `yaml:"scale" default:"20" range:"(0,10000]" also:"similarity_scale" doc:"Factor of the cosines: one over the temperature."`
}
