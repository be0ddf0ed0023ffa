package batching

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
)

// Options configure an engine. The zero value is ready to use.
type Options struct {
	// MaxLength is the maximum number of tokens of prompt and answer. Zero means as many as the
	// model supports and the cache can hold.
	MaxLength int
	// MaxTexts is the maximum number of sequences per batch. Zero means 32.
	MaxTexts int
	// MaxBatchTokens is the maximum number of tokens per step, from prompts and answers. Zero means
	// 256. A larger value reads prompts sooner and delays decoding of other requests.
	MaxBatchTokens int
	// CacheTokens is the capacity of the KV cache in tokens. Zero means 2048 per text of MaxTexts,
	// or the model's maximum length if that is less, limited to a quarter of the device memory.
	CacheTokens int
	// PageRows is the page size of the cache in tokens, a power of two. Zero means 16.
	PageRows int
	// MaxQueue is the maximum number of waiting requests, on all devices together. Zero means 1024.
	MaxQueue int
	// Adapters configure the registry. Its devices are set by the engine. If MaxResident is zero, it
	// becomes 16.
	Adapters lora.RegistryOptions
	// FixedAdapters restricts the positions of programs to adapters that are loaded. Set it if no
	// other adapter will be loaded while requests wait: smaller programs compile sooner.
	FixedAdapters bool
	// TrainShare is the fraction of time for concurrent training while there are requests (see
	// [Engine.Beside]), between 0 and 1, both excluded. Zero means 0.5.
	TrainShare float64
	// OnStep, if not nil, is called after each run on the goroutine of an engine. It must not close
	// the engine.
	OnStep func(Step)
}

// Defaults of options that are zero.
const (
	defaultTexts    = 32
	defaultTokens   = 256
	defaultLength   = 2048 // tokens per text, to size the cache
	defaultPageRows = 16
	defaultQueue    = 1024
	defaultResident = 16
	defaultShare    = 0.5
)

// complete checks the options and sets the defaults that do not depend on the device.
func (o *Options) complete(m *model.Model) error {
	for _, x := range []struct {
		name  string
		value int
	}{
		{"max length", o.MaxLength}, {"max texts", o.MaxTexts}, {"max batch tokens", o.MaxBatchTokens},
		{"cache tokens", o.CacheTokens}, {"page rows", o.PageRows}, {"max queue", o.MaxQueue},
	} {
		if x.value < 0 {
			return fmt.Errorf("batching: %w: %s: found %d, expected 0 or more", generate.ErrOption, x.name, x.value)
		}
	}
	if !(o.TrainShare >= 0 && o.TrainShare < 1) {
		return fmt.Errorf("batching: %w: train share: found %v, expected more than 0 and less than 1, or 0 for %v", generate.ErrOption, o.TrainShare, defaultShare)
	}
	if o.TrainShare == 0 {
		o.TrainShare = defaultShare
	}
	for _, x := range []struct {
		value *int
		usual int
	}{
		{&o.MaxTexts, defaultTexts}, {&o.PageRows, defaultPageRows}, {&o.MaxQueue, defaultQueue},
		{&o.MaxBatchTokens, max(defaultTokens, o.MaxTexts)}, {&o.Adapters.MaxResident, defaultResident},
	} {
		if *x.value == 0 {
			*x.value = x.usual
		}
	}
	limit := m.Config.MaxLength()
	switch {
	case o.MaxLength > limit:
		return fmt.Errorf("batching: %w: a length of %d, the model takes %d (max_position_embeddings)", generate.ErrTooLong, o.MaxLength, limit)
	case o.MaxBatchTokens < o.MaxTexts:
		return fmt.Errorf("batching: %w: %d tokens of a run for %d texts, expected as many or more", generate.ErrOption, o.MaxBatchTokens, o.MaxTexts)
	case o.PageRows&(o.PageRows-1) != 0:
		return fmt.Errorf("batching: %w: page rows: found %d, expected a power of two", generate.ErrOption, o.PageRows)
	case o.CacheTokens > 0 && o.MaxLength > o.CacheTokens/o.PageRows*o.PageRows:
		return fmt.Errorf("batching: %w: a cache of %d tokens for texts of %d, expected as many or more", generate.ErrOption, o.CacheTokens, o.MaxLength)
	case o.CacheTokens > 0 && o.CacheTokens < o.PageRows:
		return fmt.Errorf("batching: %w: a cache of %d tokens and pages of %d, expected one page or more", generate.ErrOption, o.CacheTokens, o.PageRows)
	}
	return nil
}

// size sets the defaults that depend on the device memory (0 if unknown) and on token, the cache
// memory of one token.
func (o *Options) size(m *model.Model, memory int64, token int) {
	limit := m.Config.MaxLength()
	if o.CacheTokens == 0 {
		each := o.MaxLength
		if each == 0 {
			each = min(limit, defaultLength)
		}
		o.CacheTokens = o.MaxTexts * min(each, defaultLength)
		if memory > 0 {
			o.CacheTokens = min(o.CacheTokens, int(memory/4)/max(1, token))
		}
		o.CacheTokens = max(o.CacheTokens, each) + o.PageRows - 1
	}
	o.CacheTokens = o.CacheTokens / o.PageRows * o.PageRows
	if o.MaxLength == 0 {
		o.MaxLength = min(limit, o.CacheTokens)
	}
}

// pages returns the number of pages, and tables the number of page-table entries per step. A page
// that several texts share has an entry for each of them.
func (o *Options) pages() int  { return o.CacheTokens / o.PageRows }
func (o *Options) tables() int { return min(2*o.pages(), o.MaxTexts*o.pagesOf(o.MaxLength)) }

// pagesOf returns the number of pages for a text of the given number of tokens.
func (o *Options) pagesOf(tokens int) int { return (tokens + o.PageRows - 1) / o.PageRows }

// rows returns the maximum number of tokens per step whose logits are read: one of each text, and
// some of prompts with log-probabilities.
func (o *Options) rows() int { return o.MaxTexts + promptRows }

const promptRows = 32
