package tuning

import (
	"fmt"
	"os"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// storage counts the bytes of files: files with a record, uploads in progress, and deleted files
// that an unfinished job still holds.
type storage struct {
	dir         string
	limit, keep int64 // maximum total bytes, and bytes to leave free on the disk
	used        atomic.Int64
	sizes       map[string]int64 // by file ID, without uploads in progress; guarded by Service.mu
}

// newStorage returns a counter of files in dir.
func newStorage(dir string, limit, keep int64) *storage {
	if _, total, ok := fsatomic.FreeSpace(dir); ok && keep == 0 {
		keep = min(1<<30, total/20)
	}
	return &storage{dir: dir, limit: limit, keep: keep, sizes: map[string]int64{}}
}

// reserve counts bytes before they are written. It fails with ErrNoSpace.
func (s *storage) reserve(n int64) error {
	if free, _, ok := fsatomic.FreeSpace(s.dir); ok && free-n < s.keep {
		return &Error{Kind: ErrNoSpace, Param: "file", Code: "no_space", Message: "file: the disk of the server is nearly full"}
	}
	for {
		used := s.used.Load()
		if n > s.limit-used {
			return &Error{Kind: ErrNoSpace, Param: "file", Code: "storage_limit_exceeded", Message: fmt.Sprintf("file: the files of all clients have at most %d bytes: delete some that are no longer needed", s.limit)}
		}
		if s.used.CompareAndSwap(used, used+n) {
			return nil
		}
	}
}

// add counts a file unless it is counted already. reserved bytes of it were counted before.
func (s *storage) add(id string, bytes, reserved int64) {
	if _, counted := s.sizes[id]; counted {
		bytes = 0
	} else {
		s.sizes[id] = bytes
	}
	s.used.Add(bytes - reserved)
}

// countHeld counts the files of a job that were deleted during its creation. The caller holds s.mu.
func (s *Service) countHeld(j *Job) {
	for id, name := range map[string]string{j.Request.TrainingFile: trainingData, j.Request.ValidationFile: validationData} {
		if info, err := os.Stat(s.path(jobsDir, j.ID, name)); err == nil && id != "" {
			s.storage.add(id, info.Size(), 0)
		}
	}
}

// uncount stops counting a file, unless it has a record or an unfinished job holds it. The caller
// holds s.mu.
func (s *Service) uncount(id string) {
	if _, ok := s.files[id]; ok {
		return
	}
	for _, j := range s.jobs {
		if !j.Status.Ended() && (j.Request.TrainingFile == id || j.Request.ValidationFile == id) {
			return
		}
	}
	s.storage.used.Add(-s.storage.sizes[id])
	delete(s.storage.sizes, id)
}
