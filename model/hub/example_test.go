package hub_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/model/hub"
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
