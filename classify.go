package lorafuse

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/classify"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// Class is a class of a classifier with the score of a text: its probability or, for a
// regression, the predicted number.
type Class struct {
	Name  string
	Score float64
}

// Classify returns the scores of texts, each with all classes in the order of the model.
// adapter is the name of a loaded adapter with a classification head; empty means that the
// model is a classifier itself. Texts that are too long are truncated.
func (m *Model) Classify(ctx context.Context, texts []string, adapter string) ([][]Class, error) {
	m.mu.Lock() // a classifier is used by one call at a time
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	c, err := m.classifier(adapter)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: classify: %w", err)
	}
	if len(texts) == 0 {
		return nil, nil
	}
	all, err := c.classify(ctx, m, texts)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: classify: %w", err)
	}
	return all, nil
}

// classifier is a model with a classification head.
type classifier struct {
	model     *model.Model // not that of Model if the head is from an adapter
	state     *lora.State
	tokenizer *tokenizer.Tokenizer
	limits    classify.Options
	program   *classify.Classifier // for batches up to limits; nil before the first one
}

// classifier returns the classifier of an adapter. m.mu is held.
func (m *Model) classifier(adapter string) (c *classifier, err error) {
	if c := m.classifiers[adapter]; c != nil {
		return c, nil
	}
	c = &classifier{model: m.model, tokenizer: m.tokenizer}
	if adapter != "" {
		dir, ok := m.adapters[adapter]
		if !ok {
			return nil, fmt.Errorf("adapter %q: %w", adapter, lora.ErrNotFound)
		}
		if c, err = m.openClassifier(dir); err != nil {
			return nil, err
		}
	} else if err := m.model.CheckTask(model.Classification); err != nil {
		return nil, err
	}
	m.classifiers[adapter] = c
	return c, nil
}

// openClassifier opens the model with the head of an adapter.
func (m *Model) openClassifier(dir string) (_ *classifier, err error) {
	c := &classifier{}
	if c.model, err = classify.OpenModel(m.model.Dir, dir); err != nil {
		return nil, err
	}
	if err = c.model.Quantize(m.method, nil); err == nil {
		c.state, err = lora.LoadState(dir, c.model, c.model.Config.ModelType, c.model.Modules())
	}
	if err == nil {
		c.tokenizer, err = tokenizer.LoadAdapted(dir, m.model.Dir, c.model.Config.VocabSize)
	}
	if err != nil {
		c.model.Close()
	}
	return c, err
}

func (c *classifier) close(m *Model) {
	if c.program != nil {
		c.program.Close()
	}
	if c.model != m.model {
		c.model.Close()
	}
}

// classifyRows is the number of texts per batch.
const classifyRows = 8

func (c *classifier) classify(ctx context.Context, m *Model, texts []string) (all [][]Class, err error) {
	rows, err := c.rows(ctx, m, texts)
	if err != nil {
		return nil, err
	}
	if need := (classify.Options{MaxTokens: rows.MaxTokens(), MaxDocuments: rows.MaxDocuments()}); need.MaxTokens > c.limits.MaxTokens || need.MaxDocuments > c.limits.MaxDocuments {
		if c.program != nil {
			c.program.Close()
		}
		c.limits = classify.Options{MaxTokens: max(need.MaxTokens, c.limits.MaxTokens), MaxDocuments: max(need.MaxDocuments, c.limits.MaxDocuments)}
		if c.program, err = classify.New(ctx, m.device, c.model, c.state, c.limits); err != nil {
			c.program, c.limits = nil, classify.Options{}
			return nil, err
		}
	}
	classes := c.model.Config.Classes
	var b data.Batch
	for step := range rows.StepsPerEpoch() {
		if err := rows.Fill(&b, step, 0); err != nil {
			return nil, err
		}
		scores, _, err := c.program.Score(ctx, &b)
		if err != nil {
			return nil, err
		}
		for ; len(scores) > 0; scores = scores[len(classes.Names):] {
			all = append(all, classesOf(classes, scores[:len(classes.Names)]))
		}
	}
	return all, nil
}

// rows tokenizes texts as labelled rows, whose labels do not matter.
func (c *classifier) rows(ctx context.Context, m *Model, texts []string) (*data.Loader, error) {
	classes, config := c.model.Config.Classes, c.model.Config
	o := data.Options{
		Rows: data.LabelledRows, Problem: classes.Means(), Texts: c.tokenizer, Types: config.TokenTypes(), VocabSize: config.VocabSize,
		MaxLength: config.MaxLength(), OnTooLong: data.Truncate,
	}
	if m.options.MaxLength > 0 {
		o.MaxLength = min(o.MaxLength, m.options.MaxLength)
	}
	var label any = 0
	switch o.Problem {
	case data.Regression:
	case data.MultiLabel:
		label = []int{}
		fallthrough
	default:
		o.Classes = classes.Names
	}
	var lines bytes.Buffer
	e := json.NewEncoder(&lines)
	for _, text := range texts {
		if err := e.Encode(map[string]any{"text": text, "label": label}); err != nil {
			return nil, err
		}
	}
	o.Files = memory(lines.Bytes())
	set, err := data.Load(ctx, []string{rowsFile}, o)
	if err != nil {
		return nil, err
	}
	return data.Sequential(set, classifyRows)
}

// classesOf returns the classes with the scores of a text, from the outputs of the head.
func classesOf(c model.Classes, outputs []float32) []Class {
	all, sum := make([]Class, len(outputs)), 0.0
	most := math.Inf(-1)
	for _, x := range outputs {
		most = max(most, float64(x))
	}
	for i, x := range outputs {
		all[i] = Class{c.Names[i], float64(x)}
		switch c.Means() {
		case data.Regression:
		case data.MultiLabel:
			all[i].Score = 1 / (1 + math.Exp(-float64(x)))
		default:
			all[i].Score = math.Exp(float64(x) - most)
			sum += all[i].Score
		}
	}
	for i := range all {
		if sum > 0 {
			all[i].Score /= sum
		}
	}
	return all
}
