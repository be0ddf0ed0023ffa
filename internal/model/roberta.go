package model

func init() {
	// RoBERTa (Liu et al. 2019, arXiv 1907.11692), XLM-RoBERTa (Conneau et al. 2019, arXiv
	// 1911.02116) and CamemBERT (Martin et al. 2019, arXiv 1911.03894) are BERT with positions
	// that start after the padding row.
	for _, head := range []string{"Model", "ForMaskedLM", "ForSequenceClassification"} {
		Register("Roberta"+head, Architecture{ModelType: "roberta", Read: readRoberta})
		Register("Camembert"+head, Architecture{ModelType: "camembert", Read: readRoberta})
		Register("XLMRoberta"+head, Architecture{ModelType: "xlm-roberta", Read: readRoberta})
	}
}

func readRoberta(c *Config, f *Fields) Family {
	padding := f.Int("pad_token_id", 1)
	if padding < 0 || padding >= c.VocabSize {
		f.Fail("pad_token_id", padding, "a row of the vocabulary")
	}
	e := readBert(c, f).(*Encoder)
	e.Prefix, e.Head = "roberta.", nil
	c.Padding = padding
	e.from(c, padding)
	return e
}
