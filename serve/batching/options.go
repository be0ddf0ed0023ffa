package batching

import (
	"fmt"

	"github.com/lorafuse/lorafuse/generate"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
)

// Options fix what an engine can do. The zero value is of use.
type Options struct {
	// MaxLength bounds prompt and answer together, in tokens; 0 is what the model takes
	// and the cache has room for.
	MaxLength int
	// MaxTexts is how many texts are continued at the same time; 0 is 32.
	MaxTexts int
	// MaxBatchTokens is how many tokens a run has at most, of prompts and answers; 0 is
	// 256. The more, the sooner a prompt is read and the longer others wait meanwhile.
	MaxBatchTokens int
	// CacheTokens is how many tokens have room in the cache of keys and values; 0 is
	// 2048 for each of MaxTexts, or as many as the model takes where that is less, in a
	// quarter of the memory of the device at most.
	CacheTokens int
	// PageRows is how many tokens a page of the cache holds, a power of two; 0 is 16.
	PageRows int
	// MaxQueue is how many requests may wait; 0 is 1024.
	MaxQueue int
	// Adapters are the limits of the registry. Its device is the engine, and MaxResident
	// is 16 where it is 0.
	Adapters lora.RegistryOptions
	// TrainShare is the part of the time that training beside the engine gets while there
	// are requests (see Beside), more than 0 and less than 1; 0 is 0.5.
	TrainShare float64
	// OnStep, if not nil, is called after each run, by the goroutine that makes them. It
	// must not close the engine.
	OnStep func(Step)
}

// What options are where they are 0.
const (
	defaultTexts    = 32
	defaultTokens   = 256
	defaultLength   = 2048 // of a text, for the size of the cache
	defaultPageRows = 16
	defaultQueue    = 1024
	defaultResident = 16
	defaultShare    = 0.5
)

// complete checks options and puts in what they are where they are 0, but for what
// depends on the device.
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

// size sets what depends on the memory of the device, 0 if that is not known, and on how
// much of it a token takes in the cache.
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

// pages is how many there are, and tables how many of them the texts of a run can name
// together: those that several texts share are named by each of them.
func (o *Options) pages() int  { return o.CacheTokens / o.PageRows }
func (o *Options) tables() int { return min(2*o.pages(), o.MaxTexts*o.pagesOf(o.MaxLength)) }

// pagesOf is how many pages a text of so many tokens takes.
func (o *Options) pagesOf(tokens int) int { return (tokens + o.PageRows - 1) / o.PageRows }

// rows is how many tokens of a run can have their logits read: one of each text, and
// some of prompts that are asked for theirs.
func (o *Options) rows() int { return o.MaxTexts + promptRows }

const promptRows = 32
