package config

import "github.com/lorafuse/lorafuse/internal/data"

// TaskLanguage is the task of language models: the next token of texts.
const TaskLanguage Task = "language"

var language = definition{
	name: TaskLanguage, adapter: "CAUSAL_LM", texts: true, chats: true, samples: true, shared: true,
	doc: "next-token prediction on texts.",
	rules: []rule{
		{"data.packing", func(c *Config) bool { return c.Data.Packing && c.Task != TaskLanguage },
			"packs texts of language (task: language) alone"},
		{"data.train_on", func(c *Config) bool { return c.Data.TrainOn != "answer" && c.Task != TaskLanguage },
			"belongs to task: language"},
		{"data.format", func(c *Config) bool {
			return c.Task != TaskLanguage && (c.Data.Format == data.FormatText || c.Data.Format == data.FormatTokens)
		}, "expected a format of rows, such as jsonl, csv or parquet"},
		{"data.document_separator", func(c *Config) bool {
			return c.Data.DocumentSeparator != "" && (c.Task != TaskLanguage || c.Data.Format != data.FormatAuto && c.Data.Format != data.FormatText)
		}, "belongs to plain text"},
	},
}
