package tinker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/serve/store"
)

// Files with the records of earlier versions.
const (
	oldRunFile        = "run.json"
	oldCheckpointFile = "checkpoint.json"
)

// adopt stores records of the runs and checkpoints of an earlier version, which had them in files
// next to the adapters. It leaves unreadable ones alone.
func (s *runStore) adopt(t *store.Tx) error {
	folders, err := s.entries(runsDir)
	for _, folder := range folders {
		if err == nil {
			err = s.adoptRun(t, folder)
		}
	}
	return err
}

// entries returns the names in a folder, which may be missing, and removes unfinished writes.
func (s *runStore) entries(folder string) (names []string, err error) {
	if err := fsatomic.Sweep(filepath.Join(s.root.Name(), folder)); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(s.root.FS(), folder)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return names, err
}

func (s *runStore) adoptRun(t *store.Tx, folder string) error {
	var r run
	dir := path.Join(runsDir, folder)
	err := s.readJSON(path.Join(dir, oldRunFile), &r)
	if err == nil && (!runName.MatchString(r.ID) || folderOf.Replace(r.ID) != folder) {
		err = fmt.Errorf("%s: found the run %.100q", oldRunFile, r.ID)
	}
	if err != nil {
		s.logger.Error("a training run cannot be read, and is left alone", "folder", dir, "error", err)
		return nil
	}
	for _, k := range kinds {
		names, err := s.entries(path.Join(dir, k.folder))
		if err != nil {
			return err
		}
		for _, name := range names {
			var p checkpoint
			within := path.Join(dir, k.folder, name)
			err := s.readJSON(path.Join(within, oldCheckpointFile), &p)
			if err == nil && (p.Run != r.ID || p.Kind != k.folder || p.Name != name || !isName(p.Name)) {
				err = fmt.Errorf("%s: found %.200q", oldCheckpointFile, p.URI())
			}
			if err != nil {
				s.logger.Error("a checkpoint cannot be read, and is left alone", "folder", within, "error", err)
				continue
			}
			p.Dir, p.Owner = within, r.Owner
			if err := s.checkpoints.Put(t, p); err != nil {
				return err
			}
		}
	}
	return s.runs.Put(t, r)
}

func (s *runStore) readJSON(name string, v any) error {
	raw, err := s.root.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
