package web_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/lorafuse/lorafuse/internal/serve/web"
)

func Example() {
	api := &web.API{
		Classify: func(error) *web.Failure { return nil },
		Shape:    func(f *web.Failure, _ http.Header) any { return map[string]string{"detail": f.Message} },
		MaxBody:  1 << 10, Logger: slog.New(slog.DiscardHandler),
	}
	api.Handle("POST /double", web.Everyone, func(c *web.Call) error {
		var r struct {
			Number int `json:"number" in:"0,10"`
		}
		if err := c.Decode(&r); err != nil {
			return err
		}
		return c.JSON(map[string]int{"answer": 2 * r.Number})
	})
	for _, body := range []string{`{"number":3}`, `{"number":30}`} {
		r := httptest.NewRequest("POST", "/double", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 {"answer":6}
	// 400 {"detail":"number: found 30, expected a whole number from 0 to 10"}
}
