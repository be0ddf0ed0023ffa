package lorafuse

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/classify"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/pretrained"
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
	model     *pretrained.Model // opened with an adapter that has a head; otherwise that of Model
	tokenizer *tokenizer.Tokenizer
	limits    classify.Options
	program   *classify.Classifier // for batches up to limits; nil before the first one
}

// classifier returns the classifier of an adapter. m.mu is held.
func (m *Model) classifier(adapter string) (c *classifier, err error) {
	if c := m.classifiers[adapter]; c != nil {
		return c, nil
	}
	dir, err := m.folder(adapter)
	if err != nil {
		return nil, err
	}
	if c, err = m.openClassifier(dir); err == nil {
		m.classifiers[adapter] = c
	}
	return c, err
}

// openClassifier opens the model with the head of an adapter; dir is empty if the model has one.
func (m *Model) openClassifier(dir string) (c *classifier, err error) {
	c = &classifier{}
	if dir == "" {
		if err := m.model.CheckTask(model.Classification); err != nil {
			return nil, err
		}
		c.model, err = m.model.Adapt("")
	} else {
		c.model, err = pretrained.Open(m.model.Dir, pretrained.Options{Adapter: dir, Quantize: m.method})
	}
	if err != nil {
		return nil, err
	}
	if c.tokenizer, err = c.model.Tokenizer(); err != nil {
		c.close()
	}
	return c, err
}

func (c *classifier) close() {
	if c.program != nil {
		c.program.Close()
	}
	c.model.Close()
}

// classifyRows is the number of texts per batch.
const classifyRows = 8

func (c *classifier) classify(ctx context.Context, m *Model, texts []string) (all [][]Class, err error) {
	config := c.model.Config
	set, err := data.Unlabelled(ctx, texts, classify.DataOptions(config, c.tokenizer, cmp.Or(m.options.MaxLength, config.MaxLength())))
	if err != nil {
		return nil, err
	}
	rows, err := data.Sequential(set, classifyRows)
	if err != nil {
		return nil, err
	}
	if need := classify.For(rows); need.MaxTokens > c.limits.MaxTokens || need.MaxDocuments > c.limits.MaxDocuments {
		if c.program != nil {
			c.program.Close()
		}
		c.limits = classify.Options{MaxTokens: max(need.MaxTokens, c.limits.MaxTokens), MaxDocuments: max(need.MaxDocuments, c.limits.MaxDocuments)}
		if c.program, err = classify.New(ctx, m.device, c.model.Model, c.model.State, c.limits); err != nil {
			c.program, c.limits = nil, classify.Options{}
			return nil, err
		}
	}
	for b, err := range rows.Batches() {
		if err != nil {
			return nil, err
		}
		scores, _, err := c.program.Score(ctx, b)
		if err != nil {
			return nil, err
		}
		for scores := range slices.Chunk(scores, len(config.Classes.Names)) {
			all = append(all, classesOf(config.Classes, scores))
		}
	}
	return all, nil
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
