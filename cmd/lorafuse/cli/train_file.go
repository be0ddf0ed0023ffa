package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/lorafuse/lorafuse/train/config"
	"github.com/lorafuse/lorafuse/train/config/migrate"
)

// loadSettings reads the configuration of a file with the sets, and notes the keys that have no effect.
func (a *app) loadSettings(file string, sets []string) (*config.Config, error) {
	c, err := config.Load(file, sets...)
	if err != nil {
		return nil, a.explain(file, err)
	}
	for _, key := range c.Idle() {
		a.note("note     %s: has no effect here", key)
	}
	return c, nil
}

// explain prints the problems of a file, if there are several, and returns an error that sums them up. It adds what
// is known of the keys of other trainers.
func (a *app) explain(file string, err error) error {
	var all config.Errors
	if one, ok := errors.AsType[*config.Error](err); ok {
		all = config.Errors{one}
	}
	if several, ok := errors.AsType[config.Errors](err); ok {
		all = several
	}
	if len(all) == 0 || all[0].Place == "--set" {
		return err
	}
	trainer := ""
	if errors.Is(err, config.ErrUnknownKey) || errors.Is(err, config.ErrSyntax) || all[0].Key == "" {
		trainer = trainerOf(file)
	}
	for _, e := range all {
		if errors.Is(e, config.ErrUnknownKey) {
			e.Problem = meaning(trainer, e)
		}
	}
	if len(all) == 1 && trainer == "" {
		return err
	}
	for _, e := range all {
		a.note("problem  %v", e)
	}
	a.close()
	if trainer != "" {
		return fmt.Errorf("%s is a configuration of %s, expected one of lorafuse train: lorafuse config migrate %s converts it", file, trainer, shellWord(file))
	}
	return fmt.Errorf("%s: %d problems, see above", file, len(all))
}

// trainerOf returns the trainer whose configuration a file is, or "".
func trainerOf(file string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return migrate.Detect(file, raw)
}

// meaning returns the advice on an unknown key: what the trainer, or any, means by it, or what the error says.
func meaning(trainer string, e *config.Error) string {
	key := strings.TrimLeft(e.Key, "-")
	if strings.HasPrefix(key, "jobs[") {
		key = key[strings.LastIndexByte(key, '.')+1:]
	}
	ours, why, idle := migrate.Meaning(trainer, key)
	flag := peerFlags[strings.ReplaceAll(key, "_", "-")]
	switch {
	case ours != "" && (trainer != "" || !strings.Contains(e.Problem, "here it is called")):
		return fmt.Sprintf("unknown key, here it is called %q", ours)
	case idle:
		return "has no effect here"
	case why != "":
		return "no such key: " + why
	case flag != "" && config.KeyOf(flag) == flag:
		return fmt.Sprintf("unknown key, here it is called %q", flag)
	}
	return e.Problem
}
