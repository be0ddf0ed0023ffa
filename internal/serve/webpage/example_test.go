package webpage_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/lorafuse/lorafuse/internal/serve/webpage"
)

func ExampleRoutes() {
	m := http.NewServeMux()
	for pattern, h := range webpage.Routes() {
		m.Handle(pattern, h)
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 text/html; charset=utf-8
}
