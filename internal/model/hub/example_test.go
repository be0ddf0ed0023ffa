package hub_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/model/hub"
)

func ExampleResolve() {
	cache, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(cache)

	// A folder is used as it is.
	dir, err := hub.Resolve(context.Background(), cache, hub.Options{})
	fmt.Println(dir == cache, err)

	// A model of the Hub, here without asking the Hub.
	_, err = hub.Resolve(context.Background(), "Qwen/Qwen2.5-0.5B", hub.Options{Cache: cache, Offline: true})
	fmt.Println(errors.Is(err, hub.ErrOffline))
	// Output:
	// true <nil>
	// true
}

func ExampleOpen() {
	pipeline, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(pipeline)
	if err := os.Mkdir(filepath.Join(pipeline, "vae"), 0o777); err != nil {
		fmt.Println(err)
		return
	}

	// Of a folder nothing is downloaded; of owner/name, what Fetch is asked for.
	files, err := hub.Open(context.Background(), pipeline, hub.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	dir, err := files.Fetch("vae", true)
	has, _ := files.Has("transformer")
	fmt.Println(filepath.Base(dir), err, has)
	// Output:
	// vae <nil> false
}
