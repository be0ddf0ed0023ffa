package classify_test

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/classify"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// A model with a classification adapter scores labelled rows.
func Example() {
	const dir, adapter = "../../testdata/encoders/bert-old", "../../testdata/tasks/classes-bert/final"
	ctx := context.Background()
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	dev, err := backend.Open(backend.CPU, backend.Options{})
	check(err)
	defer dev.Close()
	m, err := classify.OpenModel(dir, adapter)
	check(err)
	defer m.Close()
	state, err := lora.LoadState(adapter, m, m.Config.ModelType, m.Modules())
	check(err)
	words, err := tokenizer.Load(dir)
	check(err)
	set, err := data.Load(ctx, []string{"../../testdata/tasks/classes-bert/rows.jsonl"}, data.Options{
		Rows: data.LabelledRows, Classes: []string{"other", "related", "same"}, Texts: words, MaxLength: m.Config.MaxLength(),
	})
	check(err)
	rows, err := data.Sequential(set, set.Len())
	check(err)
	c, err := classify.New(ctx, dev, m, state, classify.Options{MaxTokens: rows.MaxTokens(), MaxDocuments: rows.MaxDocuments()})
	check(err)
	defer c.Close()
	batch, err := rows.Batch(0, 0)
	check(err)
	scores, _, err := c.Score(ctx, batch)
	check(err)
	fmt.Println(len(scores), "numbers of", batch.Rows(), "rows")
	// Output: 36 numbers of 12 rows
}
