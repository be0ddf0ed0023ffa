package tuning

import (
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/store"
)

// check validates jobs, one after the other.
func (s *Service) check() {
	for u := s.next(Validating); u != nil; u = s.next(Validating) {
		if err := caught(u.validate); err != nil && u.ctx.Err() == nil {
			u.fail(err)
		}
		s.done(u)
	}
}

// validate reads the files of a job as its run will, and resolves the settings that depend on them.
func (u *underway) validate() error {
	s := u.service
	j, err := s.Job(keys.Client{}, u.id)
	if err != nil {
		return err
	}
	c, err := s.config(&j)
	if err != nil {
		return err
	}
	var notes []Event
	read := func(paths []string) (data.Stats, error) {
		o := c.DataOptions()
		o.Tokenizer, o.Template, o.VocabSize = s.options.Data.Tokenizer, s.options.Data.Template, s.options.Data.VocabSize
		set, err := data.Load(u.ctx, paths, o)
		if err != nil {
			return data.Stats{}, err
		}
		stats := set.Stats()
		if stats.Truncated > 0 {
			notes = append(notes, message(Warn, "%d of %d rows are longer than %d tokens, and cut there", stats.Truncated, stats.Rows, o.MaxLength))
		}
		return stats, nil
	}
	stats, err := read(c.Data.Train)
	if err != nil {
		return err
	}
	if len(c.Data.Eval) > 0 {
		if _, err := read(c.Data.Eval); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.change(u.id, func(t *store.Tx, j *Job) (err error) {
		if j.Status != Validating {
			return u.ctx.Err()
		}
		j.Status, j.Rows = Queued, stats.Rows
		j.Settled.settle(j.Request.Method, j.Rows)
		j.Turn, err = t.Order()
		return err
	}, append(notes, message(Info, "Files validated, moving job to queued state"))...)
	return err
}
