package remote_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/safetensors/remote"
)

func ExampleOpen() {
	var requests int
	files := http.FileServer(http.Dir("../../testdata/lm/qwen2/model"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		files.ServeHTTP(w, r)
	}))
	defer server.Close()

	f, err := remote.Open(context.Background(), server.URL+"/model.safetensors", remote.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	fmt.Println(f.Len(), "tensors after", requests, "request")

	embedding, err := f.Lookup("model.embed_tokens.weight")
	if err != nil {
		fmt.Println(err)
		return
	}
	row, err := embedding.Slice(safetensors.Span{From: 500, To: 501}, safetensors.Span{From: 0, To: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	values, err := safetensors.Read[float32](row.View())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(values), "values after", requests, "requests")
	// Output:
	// 26 tensors after 1 request
	// 2 values after 2 requests
}
