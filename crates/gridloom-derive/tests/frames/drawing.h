struct Drawing {
    size_t m;
    size_t n;
    char *title;
    char *note;
    size_t raw_length;
    uint8_t *raw GRIDLOOM_LENGTH(raw_length);
    size_t shapes_length;
    struct Shape *shapes GRIDLOOM_LENGTH(shapes_length);
    size_t tags_length;
    char **tags GRIDLOOM_LENGTH(tags_length);
    long far;
    uint16_t small;
    bool open;
    int16_t corners[3][2];
    double *grid GRIDLOOM_LENGTH(m*n);
    struct Drawing *below;
    struct Point *first;
};
enum Shape_tag { Shape_Nothing_tag = 0, Shape_Circle_tag = 1, Shape_Polygon_tag = 2 };
enum Kind { Kind_Near = -1, Kind_Far = 7 };
struct Point {
    double x;
    float y;
    enum Kind kind;
};
struct Circle {
    struct Point centre;
    double radius;
};
struct Shape_Circle {
    struct Circle value0;
};
struct Polygon {
    size_t points_length;
    struct Point *points GRIDLOOM_LENGTH(points_length);
};
struct Shape_Polygon {
    struct Polygon value0;
};
union Shape_body {
    struct Shape_Circle Circle GRIDLOOM_CASE(1);
    struct Shape_Polygon Polygon GRIDLOOM_CASE(2);
};
struct Shape {
    enum Shape_tag tag;
    union Shape_body body GRIDLOOM_TAG(tag);
};
