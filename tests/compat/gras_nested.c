/* Data with pointers in nested structs, arrays of pointers, and lists: the program frees some of them and reads the others. */
#include <gras.h>
#include <stdio.h>
#include <stdlib.h>

GRAS_DEFINE_TYPE(s_point, struct s_point { double x, y; };)
GRAS_DEFINE_TYPE(s_path,
struct s_path {
    struct s_point start;
    int count;
    struct s_point *points GRAS_ANNOTE(size, 2 * count);
};)
GRAS_DEFINE_TYPE(s_part, struct s_part { int number; char *text; };)
GRAS_DEFINE_TYPE(s_whole, struct s_whole { struct s_part first, second; char *label; };)
GRAS_DEFINE_TYPE(s_names, struct s_names { char *names[4]; };)
GRAS_DEFINE_TYPE(s_parts,
struct s_parts {
    int count;
    struct s_part *parts GRAS_ANNOTE(size, count);
};)
GRAS_DEFINE_TYPE(s_node, struct s_node { int value; struct s_node *next; };)

int server(int argc, char *argv[]);
int client(int argc, char *argv[]);

static void declare(void) {
    gras_msgtype_declare("path", gras_datadesc_by_symbol(s_path));
    gras_msgtype_declare("whole", gras_datadesc_by_symbol(s_whole));
    gras_msgtype_declare("names", gras_datadesc_by_symbol(s_names));
    gras_msgtype_declare("parts", gras_datadesc_by_symbol(s_parts));
    gras_msgtype_declare("list", gras_datadesc_by_symbol(s_node));
}

int server(int argc, char *argv[]) {
    struct s_path path;
    struct s_whole whole;
    struct s_names names;
    struct s_parts parts;
    struct s_node list, *node;
    gras_socket_t from;
    int sum = 0;
    gras_init(&argc, argv);
    gras_socket_server((unsigned short)atoi(argv[1]));
    declare();
    gras_msg_wait(60, "path", &from, &path);
    printf("server: %g\n", path.points[3].y);
    free(path.points);
    printf("server: blocks %s\n", gras_used_ == NULL ? "none" : "left");
    gras_msg_wait(60, "whole", &from, &whole);
    free(whole.label);
    free(whole.first.text);
    printf("server: %s\n", whole.second.text);
    free(whole.second.text);
    gras_msg_wait(60, "names", &from, &names);
    free(names.names[0]);
    free(names.names[1]);
    free(names.names[2]);
    printf("server: %s\n", names.names[3]);
    free(names.names[3]);
    gras_msg_wait(60, "parts", &from, &parts);
    free(parts.parts[0].text);
    printf("server: %s\n", parts.parts[1].text);
    free(parts.parts[1].text);
    free(parts.parts);
    gras_msg_wait(60, "list", &from, &list);
    for (node = list.next; node != NULL;) {
        struct s_node *next = node->next;
        sum += node->value;
        free(node);
        node = next;
    }
    printf("server: %d\n", sum);
    gras_exit();
    return 0;
}

int client(int argc, char *argv[]) {
    struct s_point points[4] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
    struct s_path path = {{0, 0}, 2, points};
    struct s_whole whole = {{1, "first"}, {2, "second"}, "label"};
    struct s_names names = {{"one", "two", "three", "four"}};
    struct s_part two[2] = {{1, "part one"}, {2, "part two"}};
    struct s_parts parts = {2, two};
    struct s_node third = {300, NULL}, second = {20, &third}, first = {1, &second}, list = {0, &first};
    gras_socket_t to;
    gras_init(&argc, argv);
    declare();
    to = gras_socket_client(argv[1], (unsigned short)atoi(argv[2]));
    gras_msg_send(to, "path", &path);
    gras_msg_send(to, "whole", &whole);
    gras_msg_send(to, "names", &names);
    gras_msg_send(to, "parts", &parts);
    gras_msg_send(to, "list", &list);
    gras_exit();
    return 0;
}
