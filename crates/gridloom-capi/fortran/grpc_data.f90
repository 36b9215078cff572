! Data management: the functions of grpc_data.h that are written by hand, and how data are used in Fortran.
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
    use grpc_types
    use grpc_c
    use grpc_texts
    implicit none
    private

    public :: grpc_data_init, grpc_data_transfer, grpc_data_wait

    ! Waits for one datum, or for the first of several that has ended.
    interface grpc_data_wait
        procedure :: wait_for_one, wait_for_several
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
        grpc_data_init = c_data_init(data, c_texts(input_uris, inputs), c_texts(output_uris, outputs), kind, first, &
            c_modes(output_modes, modes))
    end function

    ! Copies from the first of these inputs to all of these outputs; without them, its own.
    integer(c_int) function grpc_data_transfer(data, input_uris, output_uris, output_modes)
        type(grpc_data_t), intent(inout), target :: data
        character(len=*), intent(in), optional :: input_uris(:), output_uris(:)
        integer(c_int), intent(in), optional :: output_modes(:)
        type(texts_of_c), target :: inputs, outputs
        integer(c_int), allocatable, target :: modes(:)
        grpc_data_transfer = c_data_transfer(data, c_texts(input_uris, inputs), c_texts(output_uris, outputs), &
            c_modes(output_modes, modes))
    end function

    ! Waits for the transfers of a datum.
    integer(c_int) function wait_for_one(data)
        type(grpc_data_t), intent(inout), target :: data
        type(c_ptr) :: ended
        ended = c_null_ptr
        wait_for_one = c_data_wait([c_loc(data), c_null_ptr], GRPC_DATA_WAIT_ALL, ended)
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
        wait_for_several = c_data_wait(list, mode, found)
        if (.not. present(ended)) return
        ended = 0
        if (.not. c_associated(found)) return
        do i = size(data), 1, -1
            if (c_associated(found, list(i))) ended = i
        end do
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
