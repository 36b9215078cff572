! Data management: grpc_data.h for Fortran.
!
!   type(grpc_data_t), target :: x, y
!   error = grpc_data_memory_mapping_set("y", buffer)
!   error = grpc_data_init(x, GRPC_DOUBLE, shape(buffer), input_uris=["file:x.bin"])
!   error = grpc_data_init(y, GRPC_DOUBLE, shape(buffer), output_uris=[character(len=9) :: "memory:y", "gridloom:"])
!   error = grpc_call(handle, n, x, y)
!
! - A datum has the TARGET attribute in its declaration: it is identified by its address. It must not be copied. In
!   calls it is passed as an argument.
! - Lists have no end element here. Dimensions are Fortran's, as returned by shape(): innermost first, c_int each.
! - Memory that is named by a key has the TARGET and ASYNCHRONOUS attributes, and is contiguous.
module grpc_data
    use, intrinsic :: iso_c_binding
    use grpc_texts
    implicit none
    private

    type, bind(c), public :: grpc_data_t
        private
        integer(c_int64_t) :: mark_np = 0, number_np = 0
    end type

    ! Types.
    integer(c_int), parameter, public :: GRPC_BOOL = 0
    integer(c_int), parameter, public :: GRPC_CHAR = 1
    integer(c_int), parameter, public :: GRPC_SHORT = 2
    integer(c_int), parameter, public :: GRPC_INT = 3
    integer(c_int), parameter, public :: GRPC_LONG = 4
    integer(c_int), parameter, public :: GRPC_FLOAT = 5
    integer(c_int), parameter, public :: GRPC_DOUBLE = 6
    integer(c_int), parameter, public :: GRPC_COMPLEX = 7
    integer(c_int), parameter, public :: GRPC_DOUBLE_COMPLEX = 8
    integer(c_int), parameter, public :: GRPC_STRING = 9
    integer(c_int), parameter, public :: GRPC_FILE = 10
    integer(c_int), parameter, public :: GRPC_CONTAINER_OF_GRPC_DATA = 11

    ! Modes of outputs.
    integer(c_int), parameter, public :: GRPC_VOLATILE = 0
    integer(c_int), parameter, public :: GRPC_STRICTLY_VOLATILE = 1
    integer(c_int), parameter, public :: GRPC_STICKY = 2
    integer(c_int), parameter, public :: GRPC_UNIQUE_STICKY = 3
    integer(c_int), parameter, public :: GRPC_PERSISTENT = 4
    integer(c_int), parameter :: GRPC_END_LIST = 5

    ! For which data a wait is: GRPC_WAIT_ALL and GRPC_WAIT_ANY of C, whose names Fortran cannot distinguish from
    ! functions.
    integer(c_int), parameter, public :: GRPC_DATA_WAIT_ALL = 0
    integer(c_int), parameter, public :: GRPC_DATA_WAIT_ANY = 1

    ! Kinds of information.
    integer(c_int), parameter, public :: GRPC_DATA_HANDLE = 0
    integer(c_int), parameter, public :: GRPC_INPUT_URI = 1
    integer(c_int), parameter, public :: GRPC_OUTPUT_URI = 2
    integer(c_int), parameter, public :: GRPC_MANAGEMENT_MODE = 3
    integer(c_int), parameter, public :: GRPC_TYPE = 4
    integer(c_int), parameter, public :: GRPC_DIMENSION = 5
    integer(c_int), parameter, public :: GRPC_LOCATIONS_LIST = 6
    integer(c_int), parameter, public :: GRPC_STATUS = 7

    public :: grpc_data_init, grpc_data_memory_mapping_set, grpc_data_memory_mapping_get, grpc_data_transfer
    public :: grpc_data_wait, grpc_data_save, grpc_data_load, grpc_data_getinfo
    public :: grpc_data_container_set, grpc_data_container_get, grpc_data_unbind, grpc_data_free

    ! Waits for one datum, or for the first of several that has ended.
    interface grpc_data_wait
        procedure :: wait_for_one, wait_for_several
    end interface

    ! Functions of C that are used unchanged.
    interface
        integer(c_int) function grpc_data_container_set(container, rank, data) bind(c)
            import
            type(grpc_data_t), intent(inout) :: container, data
            integer(c_int), value :: rank
        end function
        integer(c_int) function grpc_data_container_get(container, rank, data) bind(c)
            import
            type(grpc_data_t), intent(inout) :: container, data
            integer(c_int), value :: rank
        end function
        integer(c_int) function grpc_data_unbind(data) bind(c)
            import
            type(grpc_data_t), intent(inout) :: data
        end function
    end interface

    ! Functions that get another form below.
    interface
        integer(c_int) function c_init(data, input_uris, output_uris, kind, dimensions, modes) bind(c, name="grpc_data_init")
            import
            type(grpc_data_t), intent(inout) :: data
            type(c_ptr), value :: input_uris, output_uris, dimensions, modes
            integer(c_int), value :: kind
        end function
        integer(c_int) function c_set_mapping(key, data) bind(c, name="grpc_data_memory_mapping_set")
            import
            character(kind=c_char), intent(in) :: key(*)
            type(c_ptr), value :: data
        end function
        integer(c_int) function c_get_mapping(key, data) bind(c, name="grpc_data_memory_mapping_get")
            import
            character(kind=c_char), intent(in) :: key(*)
            type(c_ptr), intent(inout) :: data
        end function
        integer(c_int) function c_transfer(data, input_uris, output_uris, modes) bind(c, name="grpc_data_transfer")
            import
            type(grpc_data_t), intent(inout) :: data
            type(c_ptr), value :: input_uris, output_uris, modes
        end function
        integer(c_int) function c_wait(data, mode, returned) bind(c, name="grpc_data_wait")
            import
            type(c_ptr), intent(in) :: data(*)
            integer(c_int), value :: mode
            type(c_ptr), intent(inout) :: returned
        end function
        integer(c_int) function c_save(data, uri) bind(c, name="grpc_data_save")
            import
            type(grpc_data_t), intent(inout) :: data
            character(kind=c_char), intent(in) :: uri(*)
        end function
        integer(c_int) function c_load(data, uri) bind(c, name="grpc_data_load")
            import
            type(grpc_data_t), intent(inout) :: data
            character(kind=c_char), intent(in) :: uri(*)
        end function
        integer(c_int) function c_getinfo(data, tag, server_name, info) bind(c, name="grpc_data_getinfo")
            import
            type(grpc_data_t), intent(inout) :: data
            integer(c_int), value :: tag
            type(c_ptr), value :: server_name
            type(c_ptr), intent(inout) :: info
        end function
        integer(c_int) function c_data_free(data, uris) bind(c, name="grpc_data_free")
            import
            type(grpc_data_t), intent(inout) :: data
            type(c_ptr), value :: uris
        end function
    end interface

contains

    ! Describes a datum. Dimensions are as returned by shape(); without any it is a scalar, or has the size of its
    ! input. One mode for each output; without any, GRPC_VOLATILE.
    integer(c_int) function grpc_data_init(data, kind, dimensions, input_uris, output_uris, output_modes)
        type(grpc_data_t), intent(inout), target :: data
        integer(c_int), intent(in) :: kind
        integer(c_int), intent(in), optional :: dimensions(:), output_modes(:)
        character(len=*), intent(in), optional :: input_uris(:), output_uris(:)
        type(texts_of_c), target :: inputs, outputs
        integer(c_size_t), allocatable, target :: extents(:)
        integer(c_int), allocatable, target :: modes(:)
        type(c_ptr) :: first
        first = c_null_ptr
        if (present(dimensions)) then
            allocate(extents(size(dimensions) + 1))
            extents(:size(dimensions)) = int(dimensions(size(dimensions):1:-1), c_size_t)
            extents(size(extents)) = 0
            first = c_loc(extents)
        end if
        grpc_data_init = c_init(data, c_texts(input_uris, inputs), c_texts(output_uris, outputs), kind, first, &
            c_modes(output_modes, modes))
    end function

    ! Assigns a key for memory: URIs to memory; without memory the key is removed.
    integer(c_int) function grpc_data_memory_mapping_set(key, data)
        character(len=*), intent(in) :: key
        type(*), dimension(..), optional, target, asynchronous :: data
        type(c_ptr) :: address
        address = c_null_ptr
        if (present(data)) address = c_loc(data)
        grpc_data_memory_mapping_set = c_set_mapping(c_text(key), address)
    end function

    ! Returns the address of a key, for c_f_pointer.
    integer(c_int) function grpc_data_memory_mapping_get(key, data)
        character(len=*), intent(in) :: key
        type(c_ptr), intent(inout) :: data
        grpc_data_memory_mapping_get = c_get_mapping(c_text(key), data)
    end function

    ! Copies from the first of these inputs to all of these outputs; without them, its own.
    integer(c_int) function grpc_data_transfer(data, input_uris, output_uris, output_modes)
        type(grpc_data_t), intent(inout), target :: data
        character(len=*), intent(in), optional :: input_uris(:), output_uris(:)
        integer(c_int), intent(in), optional :: output_modes(:)
        type(texts_of_c), target :: inputs, outputs
        integer(c_int), allocatable, target :: modes(:)
        grpc_data_transfer = c_transfer(data, c_texts(input_uris, inputs), c_texts(output_uris, outputs), &
            c_modes(output_modes, modes))
    end function

    ! Waits for the transfers of a datum.
    integer(c_int) function wait_for_one(data)
        type(grpc_data_t), intent(inout), target :: data
        type(c_ptr) :: ended
        ended = c_null_ptr
        wait_for_one = c_wait([c_loc(data), c_null_ptr], GRPC_DATA_WAIT_ALL, ended)
    end function

    ! Waits for the transfers of all of these, or of any one; `ended` is the index of the first that has ended, 0 for
    ! none.
    integer(c_int) function wait_for_several(data, mode, ended)
        type(grpc_data_t), intent(inout), target, contiguous :: data(:)
        integer(c_int), intent(in) :: mode
        integer, intent(out), optional :: ended
        type(c_ptr) :: list(size(data) + 1), found
        integer :: i
        found = c_null_ptr
        list = c_null_ptr
        do i = 1, size(data)
            list(i) = c_loc(data(i))
        end do
        wait_for_several = c_wait(list, mode, found)
        if (.not. present(ended)) return
        ended = 0
        if (.not. c_associated(found)) return
        do i = size(data), 1, -1
            if (c_associated(found, list(i))) ended = i
        end do
    end function

    integer(c_int) function grpc_data_save(data, uri)
        type(grpc_data_t), intent(inout), target :: data
        character(len=*), intent(in) :: uri
        grpc_data_save = c_save(data, c_text(uri))
    end function

    integer(c_int) function grpc_data_load(data, uri)
        type(grpc_data_t), intent(inout), target :: data
        character(len=*), intent(in) :: uri
        grpc_data_load = c_load(data, c_text(uri))
    end function

    ! Returns information about a datum, on a server or anywhere; "" on an error.
    integer(c_int) function grpc_data_getinfo(data, tag, info, server_name)
        type(grpc_data_t), intent(inout), target :: data
        integer(c_int), intent(in) :: tag
        character(len=:), allocatable, intent(out) :: info
        character(len=*), intent(in), optional :: server_name
        character(kind=c_char, len=:), allocatable, target :: server
        type(c_ptr) :: asked, told
        asked = c_null_ptr
        told = c_null_ptr
        if (present(server_name)) then
            server = c_text(server_name)
            asked = c_loc(server)
        end if
        grpc_data_getinfo = c_getinfo(data, tag, asked, told)
        info = taken_text(told)
    end function

    ! Deletes the datum at these places; without any, everywhere.
    integer(c_int) function grpc_data_free(data, uris)
        type(grpc_data_t), intent(inout), target :: data
        character(len=*), intent(in), optional :: uris(:)
        type(texts_of_c), target :: places
        grpc_data_free = c_data_free(data, c_texts(uris, places))
    end function

    ! Returns a list with its end; null without modes.
    function c_modes(modes, all) result(list)
        integer(c_int), intent(in), optional :: modes(:)
        integer(c_int), allocatable, target, intent(inout) :: all(:)
        type(c_ptr) :: list
        list = c_null_ptr
        if (.not. present(modes)) return
        allocate(all(size(modes) + 1))
        all(:size(modes)) = modes
        all(size(all)) = GRPC_END_LIST
        list = c_loc(all)
    end function

end module grpc_data
