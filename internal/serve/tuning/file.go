package tuning

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Purpose is the purpose of a file.
type Purpose string

// Purposes of files. Jobs write results; clients upload the others.
const (
	FineTune Purpose = "fine-tune"
	UserData Purpose = "user_data"
	Results  Purpose = "fine-tune-results"
)

// others are OpenAI purposes that are not supported here.
var others = []string{"assistants", "batch", "vision", "evals", "assistants_output", "batch_output", string(Results)}

// ParsePurpose parses the purpose of an uploaded file.
func ParsePurpose(text string) (Purpose, error) {
	switch p := Purpose(text); {
	case p == FineTune, p == UserData:
		return p, nil
	case slices.Contains(others, text):
		return "", invalid("purpose", "%s is not supported, expected %s or %s", text, FineTune, UserData)
	}
	return "", invalid("purpose", "%s", suggest.Expected(text, []string{string(FineTune), string(UserData)}))
}

// File is the record of a file.
type File struct {
	ID      string  `json:"id"`
	Order   uint64  `json:"order"` // of creation
	Name    string  `json:"name"`
	Purpose Purpose `json:"purpose"`
	Bytes   int64   `json:"bytes"`
	Created int64   `json:"created"`
	Expires int64   `json:"expires,omitempty"` // 0: never
	Owner   string  `json:"owner,omitempty"`   // name of the key that created it
}

const filePrefix = "file-"

// Upload is a file during its upload. It becomes visible with Commit.
type Upload struct {
	service *Service
	id      string
	file    *fsatomic.File
	bytes   int64
	counted int64 // bytes reserved in the storage
}

// Upload starts an upload.
func (s *Service) Upload() (*Upload, error) {
	s.mu.Lock()
	s.expire() // may free space
	s.mu.Unlock()
	id := newID(filePrefix)
	f, err := fsatomic.Create(s.path(filesDir, id))
	if err != nil {
		return nil, written(err)
	}
	return &Upload{service: s, id: id, file: f}, nil
}

// Write implements io.Writer. It fails with ErrTooLarge and ErrNoSpace.
func (u *Upload) Write(p []byte) (int, error) {
	if most := u.service.options.MaxFile; u.bytes+int64(len(p)) > most {
		return 0, &Error{Kind: ErrTooLarge, Param: "file", Code: "file_too_large", Message: fmt.Sprintf("file: has more than %d bytes", most)}
	}
	if err := u.service.storage.reserve(int64(len(p))); err != nil {
		return 0, err
	}
	u.counted += int64(len(p))
	n, err := u.file.Write(p)
	u.bytes += int64(n)
	return n, written(err)
}

// Commit writes the file to disk and stores its record, completed with the ID, size and time.
func (u *Upload) Commit(f File) (File, error) {
	f.ID, f.Bytes, f.Created = u.id, u.bytes, time.Now().Unix()
	if u.bytes == 0 {
		u.Abort()
		return File{}, invalid("file", "is empty")
	}
	if f.Expires > 0 {
		f.Expires += f.Created
	}
	if err := u.file.Commit(); err != nil {
		return File{}, written(err)
	}
	s := u.service
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.store.update(func(t *txn) (err error) { return t.putFile(&f) })
	if err != nil {
		return File{}, errors.Join(err, os.Remove(u.file.Name()))
	}
	s.files[f.ID] = f
	s.storage.add(f.ID, f.Bytes, u.counted)
	u.counted = 0
	return f, nil
}

func (t *txn) putFile(f *File) (err error) {
	if f.Order, err = t.order(); err != nil {
		return err
	}
	return t.put(fileBucket, f.ID, f)
}

// Abort removes an incomplete file. After a successful Commit it does nothing; it must be called
// after a failed one.
func (u *Upload) Abort() {
	u.file.Abort()
	u.service.storage.used.Add(-u.counted)
	u.counted = 0
}

// expire removes expired files. The caller holds s.mu.
func (s *Service) expire() {
	now := time.Now().Unix()
	for id, f := range s.files {
		if f.Expires == 0 || f.Expires > now {
			continue
		}
		if err := s.remove(id); err != nil {
			s.options.Logger.Warn("a file that has expired is still there", "file", id, "error", err)
		}
	}
}

// Files returns the files that a client sees, latest first.
func (s *Service) Files(who keys.Client) []File {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	all := make([]File, 0, len(s.files))
	for _, f := range s.files {
		if who.Sees(f.Owner) {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(x, y File) int { return cmp.Compare(y.Order, x.Order) })
	return all
}

// File returns a file that a client sees. It fails with ErrNotFound.
func (s *Service) File(who keys.Client, id string) (File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return s.file(who, id)
}

func (s *Service) file(who keys.Client, id string) (File, error) {
	f, ok := s.files[id]
	if !ok || !who.Sees(f.Owner) {
		return File{}, &Error{Kind: ErrNotFound, Param: "id", Message: fmt.Sprintf("No such File object: %.200s", id)}
	}
	return f, nil
}

// Content opens a file that a client sees. It fails with ErrNotFound.
func (s *Service) Content(who keys.Client, id string) (File, io.ReadCloser, error) {
	f, err := s.File(who, id)
	if err != nil {
		return f, nil, err
	}
	r, err := os.Open(s.path(filesDir, f.ID))
	if errors.Is(err, fs.ErrNotExist) { // removed a moment ago
		_, gone := s.File(who, id)
		return f, nil, cmp.Or(gone, err)
	}
	return f, r, err
}

// DeleteFile removes a file that a client sees. Existing jobs keep their own link to it. It fails
// with ErrNotFound.
func (s *Service) DeleteFile(who keys.Client, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.file(who, id); err != nil {
		return err
	}
	return s.remove(id)
}

// remove removes an existing file. The caller holds s.mu.
func (s *Service) remove(id string) error {
	if err := s.store.update(func(t *txn) error { return t.remove(fileBucket, id) }); err != nil {
		return err
	}
	delete(s.files, id)
	s.uncount(id)
	if err := os.Remove(s.path(filesDir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.options.Logger.Warn("the bytes of a file that was removed are still there", "file", id, "error", err)
	}
	return nil
}
