package cli

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/serve/tinker"
	"github.com/lorafuse/lorafuse/serve"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// openTinker serves Tinker's API below --train-dir. Its resources are released by close, which runs before the engine
// closes.
func (f *serveFlags) openTinker(setup served, s *service, tok *tokenizer.Tokenizer, asked string, engine serve.Engine, onSamplerGap func(float64), log *slog.Logger) (_ *tinker.Server, close func(), err error) {
	h := s.engine.Beside()
	sessions, err := tinker.NewSessions(h)
	if err != nil {
		h.Close()
		return nil, nil, err
	}
	id := asked // the Hub name, from which clients load their tokenizer
	if info, err := os.Stat(asked); err == nil && info.IsDir() {
		id = ""
	}
	t, err := tinker.New(tinker.Options{
		Engine: engine, Trainer: sessions, Model: s.session.model, Name: s.name,
		Tokenizer: tok, TokenizerID: id, MaxLength: s.engine.MaxLength(), Dir: filepath.Join(f.trainDir, "tinker"), Keys: setup.keys.users, AdminKeys: setup.keys.admins, SharePrefixCache: f.sharePrefixCache, OnSamplerGap: onSamplerGap, Logger: log,
	})
	if err != nil {
		sessions.Close()
		h.Close()
		return nil, nil, err
	}
	return t, func() {
		t.Close()
		sessions.Close()
		h.Close()
	}, nil
}
