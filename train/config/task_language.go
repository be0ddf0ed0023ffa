package config

import "github.com/lorafuse/lorafuse/internal/data"

// Language is the task of language models: the next token of texts.
const Language Task = "language"

var language = definition{
	name: Language, adapter: "CAUSAL_LM", texts: true, chats: true, shared: true,
	doc: "next-token prediction on texts.",
	rules: []rule{
		{"data.packing", func(c *Config) bool { return c.Data.Packing && c.Task != Language },
			"packs texts of language (task: language) alone"},
		{"data.train_on", func(c *Config) bool { return c.Data.TrainOn != "answer" && c.Task != Language },
			"belongs to task: language"},
		{"data.format", func(c *Config) bool {
			return c.Task != Language && c.Data.Format != "auto" && c.Data.Format != "jsonl"
		}, "expected jsonl, the format of rows that are read whole"},
		{"data.document_separator", func(c *Config) bool {
			return c.Data.DocumentSeparator != "" && (c.Task != Language || c.Data.Format == data.FormatJSONL || c.Data.Format == data.FormatTokens)
		}, "belongs to plain text"},
	},
}
