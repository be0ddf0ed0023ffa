package tuning_test

import (
	"fmt"
	"log"
	"os"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
)

// A file is there when Commit returns, also after a crash.
func Example() {
	dir, err := os.MkdirTemp("", "tuning")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, err := model.Open("../../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s, err := tuning.Open(tuning.Options{Dir: dir, Model: m, Name: "base"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	u, err := s.Upload()
	if err != nil {
		log.Fatal(err)
	}
	defer u.Abort()
	fmt.Fprintln(u, `{"prompt": "1 + 1 =", "completion": " 2"}`)
	if _, err := u.Commit(tuning.File{Name: "sums.jsonl", Purpose: tuning.FineTune}); err != nil {
		log.Fatal(err)
	}
	for _, f := range s.Files(keys.Client{}) {
		fmt.Println(f.Name, f.Purpose, f.Bytes, "bytes")
	}
	// Output: sums.jsonl fine-tune 42 bytes
}
